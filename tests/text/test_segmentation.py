"""What a sentence is, by example, and what holds for any text at all."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_pack_densex.text.layout import Block
from llama_pack_densex.text.plain import heading_text
from llama_pack_densex.text.segments import segment, sentence_spans, statements

pytestmark = pytest.mark.pure


def split_sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


# In the examples below "|" stands between the sentences that are expected, and is not in the text itself.

ENGLISH = {
    "the mark of a note": "Its use is limited.¹ |It weighs 10⁵ kg. |It is large.",
    "two sentences": "He came. |He left.",
    "no full stop at the end": "He came. |He left",
    "a title before a name": "Mr. Smith met Mrs. Jones and Dr. Brown. |They talked.",
    "a title before a name that looks like a pronoun": "Dr. He is a surgeon.",
    "Latin abbreviations": "Use a reader, e.g. Acrobat, i.e. Adobe's. |It is free.",
    "cf. before a capital": "This is known (cf. Smith 2003). |It was shown again.",
    "et al. before a year": "Chen et al. 2023 index propositions. |So do we.",
    "et al. at the end": "It was shown by Chen et al. |The idea is old.",
    "a country before a noun": "The U.S. Government said no. |The U.K. Parliament agreed.",
    "a country at the end": "He lives in the U.S. |He likes it.",
    "a number": "See No. 5 and vol. 2, pp. 3-4, Fig. 7. |It is clear.",
    "the word no": "He said no. |The others agreed.",
    "a saint": "They sailed to St. Augustine. |It is in Florida.",
    "a street at the end": "She lives on Main St. |The house is red.",
    "p.m. before a time zone": "It starts at 5 p.m. Eastern Time. |Come early.",
    "p.m. at the end": "Be there at 5 p.m. |The train leaves then.",
    "a month": "On Jan. 5, 1990 it rained. |It stopped in Feb. |The sun came out.",
    "etc. in the middle": "Apples, pears, etc. are fruit. |Eat them.",
    "etc. at the end": "We sell apples, pears, etc. |Bananas are out of stock.",
    "a company in the middle": "Apple Inc. CEO Tim Cook spoke. |People listened.",
    "a company at the end": "He works at Apple Inc. |She works at Foo Ltd. |They are happy.",
    "junior": "Martin Luther King Jr. Day is in January.",
    "a degree": "Jane Doe, Ph.D. of Yale, spoke. |He has a Ph.D. |She has one too.",
    "initials": "J. R. R. Tolkien wrote it. |George W. Bush read it. |J.K. Rowling did not.",
    "an initial before another that reads like a word": "The theory of J. A. Hobson is known.",
    "a letter that is no initial": "Oranges have vitamin C. |They are orange.",
    "a decimal": "Pi is 3.14 and e is 2.72. |Both are irrational.",
    "a version at the end": "Install version 2.0.1. |Then restart.",
    "a year at the end": "It was founded in 1990. |In 1991 it closed.",
    "a sentence that begins with a figure": "It was 1990. |12 people came.",
    "a web address": "See https://example.com/a.b?c=d.e for more. |Or www.example.org. |It is short.",
    "an e-mail address": "Write to j.doe@example.co.uk today. |We answer.",
    "file names": "Open setup.py and run main.c. |Then edit README.md please.",
    "a name with a leading full stop": "We use .NET and Node.js here. |It works.",
    "dots before lower case": "Well... maybe not. |Wait… what?",
    "dots before upper case": "He stopped... |Then he went on… |And on.",
    "several marks": "What?! |No way!! |Really...? |Yes.",
    "a quotation at the end": 'He said "Go." |Then he left.',
    "a typographic quotation at the end": "He said “Go.” |Then he left.",
    "a quotation that the sentence goes on after": '"Is it?" he asked. |"Yes!" she said.',
    "sentences inside a quotation stay together": 'He wrote: "I came. I saw. I won." |Then he left.',
    "a sentence in brackets": "He left. |(She stayed.) |Then he came back.",
    "a remark in brackets": "He left (did he?) and came back. |She saw it.",
    "brackets that never close": "He left (she stayed. |Then he came back. |All was well.",
    "a footnote mark": "It is red.[12] |It was blue.[3][4] |It is old.[^1] |It is high.[^oil]",
    "a product that begins in lower case": "He waited. |iPhone sales rose. |eBay fell.",
    "a text without capitals": "hello there. |how are you? |i am fine, e.g. not ill.",
    "a caption": "Table 1. Results of the trial. |They are good.",
    "questions and answers": "Q. What is it? |A. It is a cat.",
    "signs at the beginning": "It costs $3.50. |£20 is too much. |#1 is best.",
    "no space after the full stop": "Hello world.This is glued.",
    "an emoji after the full stop": "Great! 🎉 |See you tomorrow. 👍",
    "the pronoun I at the end": "We make a good team, you and I. |Did you know?",
    "an omission in brackets": 'It says "the pack [...]" (Smith 55). |Go on.',
    "markup": "This is **bold.** |This is not. |_Yes._",
    "numbers inside a line": "Do this: 1. Open it. |2. Close it.",
    "a German date": "Am 3. Oktober war es kalt. |Danach nicht.",
    "German abbreviations": "Es wiegt z. B. Drei Kilo. |Gut ist i. d. R. Wenig.",
    "German laws, streets and sums": (
        "Nach § 5 Abs. 2 ist er in der Musterstr. 12. |Vgl. Abb. 3. |Er gab max. €30 Mio. inkl. Steuern."
        " |Er lief. |§ 3 gilt gem. § 4 für die Fa. Weber."
    ),
    "an initial that reads like a page": "It is by J.-P. Martin and P. Smith. |See p. 5 of it.",
    "accents": "Él vive en EE.UU. desde 1990. |¿Por qué? |¡No lo sé!",
}

JAPANESE = {
    "the mark of a note": "使い道は限られる。¹|重さは5kgである。",
    "two sentences": "猫がいる。|犬もいる。",
    "no full stop at the end": "猫がいる。|犬もいる",
    "exclamation and question": "本当！？|そうだ！|なぜ?|知らない!",
    "half-width full stop": "ﾈｺ｡|ｲﾇ｡",
    "full-width Latin full stop": "猫がいる．|犬もいる．",
    "ASCII full stop after kana": "猫がいる.|犬もいる.",
    "a quotation with と": "彼は「行こう。」と言った。|そして去った。",
    "a quotation with a comma": "「行こう。」、彼は言った。",
    "a quotation as the subject": "「行こう。」が口癖だ。|変わった人だ。",
    "a quotation and a new sentence": "「行こう。」|彼は言った。",
    "a new sentence that begins like a particle": "「行こう。」|とても嬉しかった。",
    "two quotations": "「行く？」|「うん。」|二人は立った。",
    "sentences inside a quotation": "彼は「そうか。わかった。もういい。」と言った。|終わりだ。",
    "nested quotations": "「彼は『はい。』と言った。そして去った。」と聞いた。|本当か。",
    "half-width corner brackets": "彼は｢行こう。｣と言った。|去った。",
    "a title in double brackets": "『何が？』という本。|読んだ。",
    "a remark in brackets": "東京（日本の首都。人口が多い。）に行った。|楽しかった。",
    "remarks of a law": (
        "国（県を除く。）又は市（町（村を含む。）を含む。）36のうち甲(「法」という。)の者。|次。"
    ),
    "a remark in brackets and a space": "疑問 (その答えも!) を集める。|猫がいる。",
    "brackets of mixed width": "東京（首都。大都市。)に行った。|楽しかった。",
    "a sentence in brackets": "猫がいる。|（犬もいる。）|鳥はいない。",
    "lenticular brackets": "【注意。必読。】を読む。|終わり。",
    "curly quotation marks": "彼は“そうか。よし。”と言った。|去った。",
    "straight quotation marks": '彼は"そうか。よし。"と言った。|去った。',
    "a bracket that never closes": "彼は「行こう。|そして去った。|終わり。",
    "a bracket that never opened": "行こう。」|そして去った。",
    "a decimal": "重さは3.5キロ。|長さは３．５メートル。",
    "full-width stops and figures": "図１．２を参照．|Fig. 3を見よ．|終わり．",
    "ASCII stops without spaces": "猫がいる.|3匹だ.|Pythonで数えた.|次に,大阪府.|人口は8.8百万人.",
    "a caption": "図1. 猫の数。|表２．犬の数。",
    "half a quotation in the sentence": "「え？」と彼は言った。|「なに？」の一言で終わった。",
    "numbered parts": "結果は：①成功。|②失敗。",
    "number with abbreviation": "No.1の店だ。|Dr.スランプとJ.リーグを見る。",
    "dots in the middle": "それは……わからない。|でも・・・いい。|え...何。",
    "dots before the full stop": "そうか……。|わかった・・・。|うん。",
    "a name with an exclamation mark": "ラブライブ！を見た。|次も見た。",
    "a question that is thought": "本当に要るのか？と思う。|要る！と叫んだ。|なぜ？|とても高い。",
    "bold right after the mark": "猫は**鳴く。**|犬も**走る。|速い。**|鳥だ。|**空**を飛ぶ。",
    "an emoji after the mark": "楽しい！😊|また来る。",
    "full-width space after the mark": "え！？　|本当に？　|うん。",
    "Latin words": "使うのは Python 3.12 です。|pip で入れる。",
    "space after the full stop": "猫がいる。 |犬もいる。",
}

OTHERS = {
    "Chinese": "我有一只猫。|你呢？|我有狗；他有鸟。|好！",
    "Chinese quotation": "他说：“走吧。我们走。”|然后他走了。",
    "Chinese opening quotation after a full stop": "他来了。|“你好。”|她笑了。",
    "Chinese dots": "我……不知道。|他知道。",
    "Korean": "고양이가 있다. |개도 있습니다. |정말요? |네!",
    "Korean decimal": "무게는 3.5킬로이다. |길다.",
    "Korean date": "기간은 2024. 3. 1. ~ 2024. 12. 31. |문의는 2025. 1. 2.부터 받는다. |길다.",
    "Arabic": "ذهب الولد إلى المدرسة. |هل عاد؟ |نعم.",
    "Arabic initial": "قال د. أحمد كلمة. |ثم خرج.",
    "Urdu": "یہ ایک کتاب ہے۔ |وہ قلم ہے۔",
    "Hindi": "यह किताब है। |वह कलम है॥ |क्या?",
    "Hindi title": "डॉ. सिंह आए। |वे बैठे।",
    "Russian": "А. С. Пушкин родился в 1799 г. в Москве. |Он был поэтом.",
    "Greek": "Η γάτα κοιμάται. |Ο σκύλος τρέχει!",
    "Hebrew": "החתול ישן. |הכלב רץ.",
    "Armenian": "Սա գիրք է։ |Դա գրիչ է։",
    "Ethiopic": "ይህ መጽሐፍ ነው። |ያ ብዕር ነው።",
    "Burmese": "ဒါကစာအုပ်ပါ။ |ဟုတ်တယ်။",
    "Thai phrase": "ฉันชอบ แมว",
    "Thai title": "ดร. สมชาย มา",
    "German ordinals": "In der 3. Klasse gilt das. |Am 1. und 2. Feiertag nicht. |Es sind 3. |Gut.",
    "German abbreviations": "Das gilt z. B. Montags, zzgl. Versand, ggf. Zoll, d. h. Steuern. |Gut.",
    "French quotation": "« Venez demain. » |Il partit. |« Bien », dit-elle.",
    "Spanish": "Vive en la calle Mayor, núm. 5, en EE. UU. con el Sr. Paz. |Vea la pág. 3. |Fin.",
    "Italian": "Il sig. Rossi e il dott. Verdi citano il d.lgs. 231/2001. |Fine.",
    "Portuguese": "A Exma. Sra. Lima mora na Av. Paulista. |Veja a pág. 10. |Fim.",
    "Dutch": "Zie blz. 12, bijv. nr. 3, van dr. Jansen. |Klaar.",
    "Polish": "Zob. art. 5 ust. 2 pkt. 3, tzn. Kodeks, przy ul. Długiej. |Koniec.",
    "Russian references": "См. рис. 3 и табл. 2 на стр. 10, т. е. Приложение. |Дом 12, с. 5. |Конец.",
    "Vietnamese": "TS. An ở TP. Huế, xem tr. 5. |Hết.",
}

LINES = {
    "a wrapped sentence": (
        "The quick brown fox jumps over the lazy dog while the sun\nsets behind the hills. |It is late."
    ),
    "a wrap before a name": (
        "The pack was written for people who wanted to use it with\nLlamaIndex and who had no time.\n|It is "
        "small."
    ),
    "a wrap before a name, in a narrow column": "The largest city in the United Kingdom is\nLondon.",
    "a short wrap before lower case": "This is a sentence that\nwraps over two lines.",
    "a wrap with CRLF": "This is a long sentence that somebody has\r\nwrapped.\r\n|This is another.",
    "a wrap after an abbreviation": "He was seen by several people together with Prof.\nSmith in the park.",
    "lower case after a line that ends in a full "
    "stop": "The last line of this paragraph is not that short.\n|short",
    "front matter": "---\ntitle: foo\ndate: 2024\n---",
    "text between rules": "---\n|Tower: it is high.\n|It is old.\n|---",
    "headlines": "日本の経済は回復している\n|政府が新しい政策を発表した\n|株価は三日連続で上昇した",
    "lines longer than any margin": f"{'This goes on and on and ' * 9}ends\n|Here is another.",
    "a wrap before a number": (
        "He was still living there with his mother at the age of\n45. |He then moved to the coast."
    ),
    "a wrap before the section of a manual": (
        "The rules are the same that are told in the manual page of bash\n(1) and in its own. |They are "
        "short."
    ),
    "entries of contents": (
        "1.1 The tower . . . . . . . . 5\n|1.2 The lamp of Karsted and its keeper . . . . . . 17"
    ),
    "items in brackets": "There are three of them on the long table over there:\n|(1) apples;\n|(2) pears.",
    "a wrapped Korean word": (
        "1994년은 데비안 프로젝트를 정비하여 제대로 동작하기 시작했\n다. |1994년에는 공식적인 릴리스가 없다."
    ),
    "a blank line": (
        "The first paragraph has no full stop and is quite long\n\n|and the second begins in lower case"
    ),
    "fields": "Name: John Smith\n|Age: 45\n|City: Rome",
    "an address": "John Smith\n|12 Main Road\n|London",
    "a poem": (
        "Shall I compare thee to a summer's day?\n|Thou art more lovely and more temperate:\n"
        "|Rough winds do shake the darling buds of May,\n|And summer's lease hath all too short a date"
    ),
    "a list of words": "flour\n|sugar\n|milk",
    "a title line": (
        "Attention Is All You Need: The Story of the Transformer Model\n|Ashish Vaswani and others"
    ),
    "a title line above "
    "prose": "A short title\n|The text below it is much longer than the title and ends with a stop.",
    "a line that ends in a colon": "Ingredients:\n|Flour and sugar",
    "a wrapped Japanese sentence": (
        "吾輩は猫である。|名前はまだ無い。|どこで生れたかとんと見当が\nつかぬ。"
        "|何でも薄暗いじめじめした所でニャーニャー泣いていた\n"
        "事だけは記憶している。"
    ),
    "a Japanese wrap after a comma": "昨日の夜は雨が降っていたので、家の中で、\n本を読んでいた。",
    "a short Japanese line after a comma": "資料の件ですが、\n明日お送りします。|東京を\n通る。",
    "short Japanese lines": "古池や\n|蛙飛びこむ\n|水の音",
    "Japanese fields": "名前：山田太郎\n|住所：東京都千代田区",
    "a Japanese title above "
    "prose": "第一章　猫について\n|猫は日本でもっとも多く飼われている動物の一つである。",
    "a Japanese paragraph that a full-width space opens": (
        "猫は日本でもっとも多く飼われている動物の一つで\n人気があるということが知られているという話だ\n"
        "|　犬は二番目に多い。"
    ),
    "a Japanese quotation over the end of a line": "「猫がいる。\n|犬もいる。」\n|鳥はいない。",
    "a Markdown list": "- One thing\n|- Another thing. |It is longer.\n|* A third",
    "a numbered list": "1. Open it. |Wait.\n|2. Close it.\n|10. Done",
    "a list in brackets": "(1) First\n|(2) Second\n|a) Third",
    "a list with circled numbers": "①開ける。|待つ。\n|②閉じる。",
    "a Japanese list": "・猫\n|・犬。|鳥。\n|●魚",
    "a Japanese numbered list": "１．概要\n|２．方法\n|（３）結果",
    "a bullet sign": "• One\n|• Two",
    "lines of a conversation": (
        "Ada: the deploy failed last night because the disk was full\n|Bo: how full was it before that?\n"
        "|Ada: nearly"
    ),
    "lines with the time": (
        "[10:03] ada: the deploy failed last night because the disk of db-2 was full\n|[10:04] bo: how full "
        "was it?"
    ),
    "a time at the end of a "
    "wrap": "The meeting of the whole harbour board starts in the hall at\n10:30. |All come.",
    "a hanging indent": "- This item is long enough that it had to be wrapped\n  over two lines.\n|- Next",
    "a list after a sentence": "We need two things:\n|- time\n|- money",
    "a clause of a contract": (
        "2.1   This Agreement begins on the Effective Date and goes on for\n      three years. |It ends "
        "then.\n|2.2   The Customer pays."
    ),
    "options of a command": (
        "-v, --verbose  print every step and what it\n               was given\n|-q  print nothing"
    ),
    "a marker alone on its line": "1.\nOpen it.\n|2.\nClose it.",
    "a rule": "One\n\n|* * *\n\n|Two",
}


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(expected, id=f"{group}: {name}")
        for group, examples in (
            ("en", ENGLISH),
            ("ja", JAPANESE),
            ("other", OTHERS),
            ("lines", LINES),
        )
        for name, expected in examples.items()
    ],
)
def test_sentences(expected: str) -> None:
    assert split_sentences(expected.replace("|", "")) == [
        sentence.strip() for sentence in expected.split("|")
    ]


HEADINGS = [
    "# Title",
    "### Title. With a full stop. ###",
    "Title\n=====",
    "Title\n---",
    "== 歴史 ==",
    "=== History ===",
    "Restructured\n~~~~~~~~~~~~",
    "1.2. 概要\n~~~~~~~~~",
    "Deeper\n^^^^^^",
    'Deepest\n"""""""',
    "2. Method\n=========",
    "3.2.2 Access to files",
    "1.4. Can I install it?",
    "4.1　「塔」の高さ",
    "第3章 総則",
    "第 8 章 更新软件包",
    "第二条（定義）",
    "【概要】",
    "■ 議題1：新製品",
    "附　則",
    "附則（令和6年4月1日）",
    "== The lamp",
    "=== `oil` and wicks",
]


@pytest.mark.parametrize("heading", HEADINGS)
def test_heading_is_a_segment_of_its_own(heading: str) -> None:
    text = f"{heading}\nThe text follows. It goes on."
    assert [(found.kind, text[found.start : found.end]) for found in segment(text)] == [
        ("heading", heading),
        ("sentence", "The text follows."),
        ("sentence", "It goes on."),
    ]


@pytest.mark.parametrize(
    "heading",
    [
        "1. The lamp",
        "２．目的",
        "Chapter 2. The lamp",
        "付録 A. 用語",
        "3.1.2. /etc/lamp : Its switch",
        "5.8. lamps",
        "SCHEDULE 2 - LAMPS",
        "Section 4 – Your duties",
        "ARTICLE II",
        "Annex IV",
        "§ 12a Widerruf",
    ],
)
def test_a_line_between_blank_ones_is_a_heading_by_its_number_alone(heading: str) -> None:
    text = f"It ends here.\n\n{heading}\n\nThe text follows.\nIt goes on."
    assert [
        text[found.start : found.end] for found in segment(text) if found.kind == "heading"
    ] == [heading]


@pytest.mark.parametrize(
    "text",
    [
        "1. Fill the lamp\n\n2. Light it\n\nThe lamp is lit.",
        "1. Fill the lamp\n\n   It takes oil.\n\n2. Light it\n\n   The lamp is lit.",
        "1. Fill the lamp with oil.\n\nIt is heavy.",
        "1.1. lamps\n\n1.2. oils\n\n1.3. wicks",
        "Chapter 2 of the book is about the lamp.\n\nIt is long.",
        "Section 4 applies to lamps\n\nIt is long.",
        "§ 3 Abs. 2 bleibt unberührt\n\nIt is long.",
    ],
)
def test_a_line_between_blank_ones_that_is_an_item_or_says_something_is_no_heading(
    text: str,
) -> None:
    assert {found.kind for found in segment(text)[:-1]} == {"sentence"}


@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_the_title_below_the_number_of_an_article_belongs_to_its_heading(between: str) -> None:
    heading = f"Article 7{between}Use of lamps"
    text = f"It ends here.\n\n{heading}\n\n1. A lamp is lit at dusk."
    (found,) = (part for part in segment(text) if part.kind == "heading")
    assert text[found.start : found.end] == heading
    assert heading_text(heading) == "Article 7 Use of lamps"


def test_a_numbered_heading_stands_below_a_list_and_above_indented_text() -> None:
    text = (
        "8.  Lamps\n\n8.1  A lamp has:\n\n(a)  oil; and\n\n(b)  a wick.\n\n9.  Oil\n\n"
        "9.1  It is clean.\n\n10.  Wicks\n\n   They are of cotton.\n"
    )
    headings = [text[part.start : part.end] for part in segment(text) if part.kind == "heading"]
    assert headings == ["8.  Lamps", "9.  Oil", "10.  Wicks"]


@pytest.mark.parametrize("title", ["Section 2.02 Late Charge.", "2.1 **Refunds of fees.**"])
def test_the_title_of_a_clause_is_read_with_its_first_sentence(title: str) -> None:
    assert split_sentences(f"{title} It is 4%. It is due.") == [f"{title} It is 4%.", "It is due."]


def test_headings_of_restructured_text_open_no_block_of_code() -> None:
    text = "First\n~~~~~\n\nOne. Two.\n\nSecond\n~~~~~~\n\nThree."
    assert [
        (found.kind, found.level, text[found.start : found.end]) for found in segment(text)
    ] == [
        ("heading", 3, "First\n~~~~~"),
        ("sentence", 0, "One."),
        ("sentence", 0, "Two."),
        ("heading", 3, "Second\n~~~~~~"),
        ("sentence", 0, "Three."),
    ]


def test_a_frame_of_asciidoc_makes_no_headings() -> None:
    text = (
        "First\n-----\n\n[NOTE]\n==============\nIt is a lamp that nobody\nhas ever lit.\n==============\n\n"
        "The end."
    )
    assert [
        text[found.start : found.end] for found in segment(text) if found.kind == "heading"
    ] == ["First\n-----"]


PAGE_JA = """\
2.2 プログラムの選定
おそらく、作成したいパッケージを選んだことと思います。まず最初にしなければならないことは、ディストリビ
ューションのアーカイブにそのパッケージがすでにあるかどうかを確認することです。
http://www.example.org/doc/developers-reference/best-practices/new-maintainer-upload-and-what-comes-after-it.html
• aptitude コマンド
• ウェブページ
もしパッケージが既に存在していたら、インストールしましょう! もしそのパッケージがみなし子状態 (メンテ
ナーが Example QA Group に設定されていること) なら、そのパッケージを他人にとられていなけ
れば、引き取ることができるかもしれません。パッケージの所有状態の情報源はいくつかありま
す。
12"""


def test_sentences_of_a_page_are_whole_though_one_of_its_lines_is_wider() -> None:
    sentences = ["".join(sentence.split()) for sentence in split_sentences(PAGE_JA)]
    assert sentences == [
        "2.2プログラムの選定",
        "おそらく、作成したいパッケージを選んだことと思います。",
        "まず最初にしなければならないことは、"
        "ディストリビューションのアーカイブにそのパッケージがすでにあるかどうかを確認することです。",
        "http://www.example.org/doc/developers-reference/best-practices/new-maintainer-upload-and-what-comes-after-it.html",
        "•aptitudeコマンド",
        "•ウェブページ",
        "もしパッケージが既に存在していたら、インストールしましょう!",
        "もしそのパッケージがみなし子状態(メンテナーがExampleQAGroupに設定されていること)なら、"
        "そのパッケージを他人にとられていなければ、引き取ることができるかもしれません。",
        "パッケージの所有状態の情報源はいくつかあります。",
        "12",
    ]


def test_entries_of_a_table_of_contents_and_what_is_said_of_a_number_are_no_headings() -> None:
    for text in (
        "1.1 The tower\n1.2 The lamp\n1.3 The keeper",
        "1.1 The tower . . . . . . . . 5\nIt is high.",
        "1.1 How does the tower of Karsted compare with the other towers of\nthe coast?\nIt is high.",
        "第1条 この規程は、塔の管理を定める。\nIt is short.",
        "3.5 kg of flour\nMix it with water.",
        "■ flour\n■ sugar\n■ milk",
        "（笑）\nIt is funny.",
        "Its length is the same as\n== of the other one.",
        "附則の規定により、塔を閉じる。\nIt is short.",
        "We ran this:\n# apt-get update\nIt took a minute.",
        "We wrote this:\n# The oil of the lamp,\n# in litres.\noil = 3",
    ):
        assert {found.kind for found in segment(text)} == {"sentence"}, text


@pytest.mark.parametrize("line", ["#hashtag", "#1 of 5", "= 5", "a == b"])
def test_line_that_only_resembles_a_heading_is_a_sentence(line: str) -> None:
    assert [found.kind for found in segment(line)] == ["sentence"]


BLOCKS = {
    "fenced code": "```python\nx = 1. \n\n# no heading\ny = 2\n```",
    "tilde fence": "~~~\n```\nFoo. Bar.\n~~~",
    "fence that is never closed": "```python\nx = 1\n\ny = 2",
    "HTML table": (
        "<table class='x'>\n<tr><td>One. Two.</td></tr>\n\n<tr><td><table></table></td></tr>\n</table>"
    ),
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
def test_block_stays_whole(block: str) -> None:
    text = f"Before. This is\n{block}"
    assert split_sentences(text) == ["Before.", "This is", block]
    assert [found.kind for found in segment(text)] == ["sentence", "sentence", "code"]


# Each row, which is what a table has for sentences, with what it says by itself.
TABLES = {
    "record with a line that has no name": (
        "|  |  |\n| --- | --- |\n| 青葉商事 御中 |  |\n| 番号： | Q-7 |",
        {
            "|  |  |\n| --- | --- |\n| 青葉商事 御中 |  |\n| 番号： | Q-7 |": "青葉商事 御中; 番号: Q-7",
        },
    ),
    "table": (
        "| a | b |\n|---|:-:|\n| One. Two. | 3 |",
        {"| One. Two. | 3 |": "a: One. Two.; b: 3"},
    ),
    "table without outer pipes": (
        "a | b\n--|--\n1 | 2\n3 | 4",
        {"1 | 2": "a: 1; b: 2", "3 | 4": "a: 3; b: 4"},
    ),
    "rows without a header": (
        "| 猫。犬。 | 1 |\n| 鳥。 | 2 |",
        {"| 猫。犬。 | 1 |": "猫。犬。; 1", "| 鳥。 | 2 |": "鳥。; 2"},
    ),
    "grid table": (
        "+---+---+\n| a | b |\n+===+===+\n| 1 | 2 |\n|   | 3 |\n+---+---+",
        {"| 1 | 2 |\n|   | 3 |\n+---+---+": "a: 1; b: 2 3"},
    ),
    "grid table without a header": (
        "+---+---+\n| a | b |\n+---+---+",
        {"+---+---+\n| a | b |\n+---+---+": "a; b"},
    ),
    "empty cells": (
        "| a | b |\n|---|---|\n| 1 | |\n| | 2 |",
        {"| 1 | |": "a: 1", "| | 2 |": "b: 2"},
    ),
    "escaped pipes and links": (
        "| a | b |\n|---|---|\n| x \\| y | [z](https://example.com) |",
        {"| x \\| y | [z](https://example.com) |": "a: x | y; b: z"},
    ),
    "record": (
        "|  |  |\n| --- | --- |\n| 品名 | 湯飲み |\n| 価格 | 800円 |",
        {
            "|  |  |\n| --- | --- |\n| 品名 | 湯飲み |\n| 価格 | 800円 |": "品名: 湯飲み; 価格: 800円"
        },
    ),
    "HTML table": (
        "<table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td rowspan=2>1</td><td>2 &amp; 3</td></tr>\n"
        "<tr><td>4</td></tr>\n</table>",
        {
            "<tr><td rowspan=2>1</td><td>2 &amp; 3</td></tr>\n": "a: 1; b: 2 & 3",
            "<tr><td>4</td></tr>\n</table>": "a: 1; b: 4",
        },
    ),
    "headers over several columns": (
        "<table><tr><th rowspan=2>店</th><th colspan=2>2024</th></tr><tr><th>計画</th><th>実績</th></tr>"
        "<tr><td>那覇</td><td>75</td><td>91</td></tr></table>",
        {
            "<tr><td>那覇</td><td>75</td><td>91</td></tr></table>": "店: 那覇; 2024 計画: 75; 2024 実績: 91"
        },
    ),
}


@pytest.mark.parametrize(("table", "rows"), TABLES.values(), ids=TABLES.keys())
def test_a_table_is_its_rows(table: str, rows: dict[str, str]) -> None:
    text = f"Before. This is\n\n{table}"
    segments = segment(text)
    assert split_sentences(text)[:2] == ["Before.", "This is"]
    assert {text[part.start : part.end].strip(): part.row for part in segments if part.row} == {
        row.strip(): statement for row, statement in rows.items()
    }
    assert "".join(text.split()) == "".join("".join(split_sentences(text)).split())


def test_text_after_a_block_is_split() -> None:
    text = "<table><tr></tr></table>\nOne. Two.\n```\nx\n```\nThree. Four.\n| a |\n| b |\nFive."
    sentences = [
        text[found.start : found.end] for found in segment(text) if found.kind == "sentence"
    ]
    assert sentences == ["One.", "Two.", "Three.", "Four.", "Five."]


def test_closing_fence_whose_beginning_was_cut_off_swallows_nothing() -> None:
    text = "x = 1\n```\nOne. Two.\n\nThree."
    assert split_sentences(text) == ["x = 1", "```", "One.", "Two.", "Three."]


def test_table_that_is_never_closed_swallows_nothing() -> None:
    assert split_sentences("<table> One. Two.\n\nThree.") == ["<table> One.", "Two.", "Three."]


def test_quotation_far_longer_than_a_sentence_is_split() -> None:
    assert len(split_sentences("「" + "猫がいる。" * 200 + "」")) == 200


def test_segment_says_where_and_what() -> None:
    assert segment("  # A\n\nB. ") == (Block(2, 5, "heading", 1), Block(7, 9, "sentence"))
    assert sentence_spans("  # A\n\nB. ") == [(2, 5), (7, 9)]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u3000\t\r\n"])
def test_blank_text_has_no_segments(text: str) -> None:
    assert segment(text) == ()


NASTY = list(
    "aB1あ漢한ا।.。．!?！？…・,、:：;\"'“”‘’「」『』｢｣()（）[]【】<>«»#=-*+_|`~>①•\\/@$%\t\n\r "
    "\u3000\x00\x1c\x85"
)
NASTY += [
    "\u200b",
    "\u200f",
    "\u2028",
    "\ufeff",
    "\ufe0f",
    "\u200d",
    "🎉",
    "\ud800",
    "e\u0301",
    "ก ก",
]
NASTY += [
    "\r\n",
    "\n\n",
    "1. ",
    "- ",
    "```",
    "~~~",
    "<table>",
    "</table>",
    "|-|",
    "==",
    "U.S.",
    "Mr. ",
    "...",
    "。」と",
    "# ",
]


def check_segments(text: str) -> None:
    end = 0
    for found in segment(text):
        assert end <= found.start < found.end
        assert text[end : found.start].strip() == ""
        assert text[found.start : found.end] == text[found.start : found.end].strip()
        end = found.end
    assert text[end:].strip() == ""


@given(st.text())
def test_segments_cover_any_text(text: str) -> None:
    check_segments(text)


@given(st.lists(st.sampled_from(NASTY), max_size=60).map("".join))
@example("<table></table></table>.<table>")
@example("。「」。")
@example("```a\n\n")
def test_segments_cover_nasty_text(text: str) -> None:
    check_segments(text)
    assert segment(text) == segment(text)
    # Splitting never loses a character, so that the sentences together have the text's own.
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@given(
    st.lists(st.sampled_from(NASTY), max_size=20).map("".join),
    st.lists(st.sampled_from(NASTY), max_size=20).map("".join),
)
def test_blank_line_always_separates(one: str, two: str) -> None:
    text = f"{one.replace('`', '').replace('~', '').replace('<', '')}x\n\nx{two}"
    assert any(text[: found.start].endswith("\n\n") for found in segment(text))


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "。",
        "「",
        "「」",
        "「。」",
        "1.",
        "(",
        '"',
        "A. ",
        "a\n",
        "・",
        "…",
        "- ",
        "|\n",
        "`",
        "~",
        "<table>",
        "```\n",
        "\x00",
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("length", [10**5, 10**6])
def test_time_is_linear_in_the_length(unit: str, length: int) -> None:
    text = unit * (length // len(unit))
    began = time.process_time()
    check_segments(text)
    # five seconds for a megabyte at most; quadratic time would take hours
    assert time.process_time() - began < 60


def test_a_comment_over_several_lines_of_a_paragraph_is_in_its_sentence() -> None:
    text = "It ends here <!-- once more\na remark\n--> and now."
    assert split_sentences(text) == [text]


def test_each_field_of_a_long_record_is_a_unit_that_says_what_it_is_a_record_of() -> None:
    names = ["Location", "Certificate", "Landing gear type", "Rated power", "耐空証明", "Remarks"]
    values = ["Tallahassee, Florida", "Private", "Tail wheel", "", "普通", "None. " * 30]
    lines = [f"| {name}: | {value} |" for name, value in zip(names, values, strict=True)]
    record = "\n".join(["|  |  |", "| --- | --- |", *lines])
    stated = statements(record)
    assert [statement.text for statement in stated[:4]] == [
        "Location: Tallahassee, Florida",
        "Location: Tallahassee, Florida; Certificate: Private",
        "Location: Tallahassee, Florida; Landing gear type: Tail wheel",
        "Location: Tallahassee, Florida; 耐空証明: 普通",
    ]
    assert len(stated) == 5
    assert [record[slice(*statement.span)] for statement in stated[1:3]] == lines[1:3]


def test_a_short_record_is_one_unit_without_the_names_of_values_that_are_left_out() -> None:
    lines = ["| Name: | Ann |", "| Phone: |  |", "| Says: | as follows: |", "| City: | Ulm: |"]
    record = "\n".join(["|  |  |", "| --- | --- |", *lines])
    (statement,) = statements(record)
    assert statement.text == "Name: Ann; Says: as follows:; City: Ulm:"
