"""Two small datasets to compare strategies over: articles of three passages each, in English and in
Japanese."""

from __future__ import annotations

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.datasets import EvaluationSet, Question

ENGLISH = {
    "Tides": [
        "The Moon pulls the ocean towards itself. Its pull raises two bulges of water, one on either side.",
        "The Bay of Fundy in Canada has the highest tides. The water rises by 16 metres there.",
        "A tidal mill grinds grain. The oldest one known stood in Nendrum and was built in 619.",
    ],
    "Bridges": [
        "The Akashi Bridge opened in 1998. Its main span is 1,991 metres long.",
        "Humber Bridge was the longest before it. Queen Elizabeth opened that bridge in 1981.",
        "Galloping Gertie fell in a storm. Wind of 64 kilometres an hour was enough.",
    ],
}
JAPANESE = {
    "新幹線": [
        "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。",
        "最高速度は時速320キロである。東北新幹線の一部で出している。",
        "黄色い車両は点検に使われる。ドクターイエローと呼ばれて親しまれた。",
    ],
    "琵琶湖": [
        "琵琶湖は日本最大の湖である。面積は約670平方キロメートルに及ぶ。",
        "湖には竹生島が浮かぶ。島の都久夫須麻神社には国宝の本殿がある。",
        "水は瀬田川から流れ出る。下流では宇治川、さらに淀川と名を変える。",
    ],
}
QUESTIONS = {
    "en": [
        ("How far does the water rise in the Bay of Fundy?", "16 metres", "Tides", 1),
        ("Where did the oldest tidal mill stand?", "Nendrum", "Tides", 2),
        ("When did the Akashi Bridge open?", "1998", "Bridges", 0),
        ("Who opened the Humber Bridge?", "Queen Elizabeth", "Bridges", 1),
    ],
    "ja": [
        ("新幹線はいつ開業したか。", "1964年", "新幹線", 0),
        ("点検に使われる黄色い車両は何と呼ばれるか。", "ドクターイエロー", "新幹線", 2),
        ("琵琶湖の面積はどれほどか。", "約670平方キロメートル", "琵琶湖", 0),
        ("瀬田川は下流で何と名を変えるか。", "宇治川", "琵琶湖", 2),
    ],
}


def small_set(language: str = "en") -> EvaluationSet:
    """A dataset of two articles and four questions."""
    gap = "\n\n"
    documents, passages = [], {}
    for title, texts in (ENGLISH if language == "en" else JAPANESE).items():
        starts = [
            sum(len(text) + len(gap) for text in texts[:number]) for number in range(len(texts))
        ]
        passages[title] = [
            (start, start + len(text)) for start, text in zip(starts, texts, strict=True)
        ]
        documents.append(Document(id_=title, text=gap.join(texts), metadata={"title": title}))
    questions = [
        Question(f"{language}{number}", text, (answer,), title, passages[title][place])
        for number, (text, answer, title, place) in enumerate(QUESTIONS[language])
    ]
    return EvaluationSet(f"small {language}", language, documents, questions, passages)
