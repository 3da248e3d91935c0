"""Corpora in two languages and small real embedding models, for tests of search."""

from __future__ import annotations

from typing import Any

from llama_index.core import Document
from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import BaseNode, NodeWithScore

from llama_pack_densex import DenseXRetrievalPack
from tests.embedding import TrigramEmbedding
from tests.openai_server import embed

ENGLISH = {
    "tides": (
        "The Moon pulls the ocean towards itself. Its pull raises two bulges. "
        "The Bay of Fundy has high tides."
    ),
    "bridge": (
        "The Akashi Bridge opened in 1998. Its main span is 1,991 metres long. It crosses a busy strait."
    ),
    "miso": "Miso is made of fermented soybeans. Salt and koji are added. Its colour differs by region.",
    "chess": (
        "Chess is played by two people. Each of them has sixteen pieces. A captured piece is gone for good."
    ),
    "glass": "Glass is melted from sand. Soda lowers the heat that is needed. Lime makes it durable.",
    "lighthouse": (
        "The lighthouse stands on a cliff. Its lamp turns every ten seconds. Sailors know its red stripe."
    ),
}
JAPANESE = {
    "琵琶湖": "琵琶湖は滋賀県にある。日本で最も大きい湖である。多くの固有種が住む。",
    "富士山": "富士山は静岡県と山梨県にまたがる。標高は3776メートルである。夏に多くの人が登る。",
    "醤油": "醤油は大豆と小麦を発酵させて作る。濃口と薄口が知られている。刺身にも欠かせない。",
    "新幹線": "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。時速210キロで走った。",
    "将棋": "将棋は二人で指す。駒は四十枚ある。取った駒を再び使える。",
    "折り紙": "折り紙は紙を折って形を作る。鶴が最もよく知られる。はさみは使わない。",
}
MORE_JAPANESE = {
    text.split("は")[0]: text
    for text in (
        "猫は夜に目が利く。髭で隙間の幅を測る。",
        "梅は早春に咲く。実を塩に漬けて干す。",
        "石炭は太古の樹木から生じた。鉱夫が坑道で掘る。",
        "羅針盤は北を指す。航海士が頼りにした。",
        "ピアノは弦を槌で叩く。鍵盤が八十八ある。",
        "相撲は土俵で行う。力士が塩をまく。",
        "緑茶は葉を蒸して揉む。茶葉は発酵させない。",
        "火山は溶岩を噴き出す。灰が空を覆う。",
        "望遠鏡は遠い星を映す。鏡を磨いて作られる。",
        "俳句は十七音から成る。季語を一つ含む。",
        "蜜蜂は花粉を運ぶ。巣は六角形をしている。",
        "時計は振り子で刻む。歯車が針を回す。",
        "養蚕は繭から絹を得る。桑を食べさせる。",
        "地下鉄はトンネルを走る。混雑を避けて便利だ。",
        "和紙は楮の繊維を漉く。丈夫で長持ちする。",
        "台風は南の海で発達する。渦を巻いて進む。",
        "珊瑚は暖かい海に群れる。白化が心配される。",
        "眼鏡はレンズで視力を補う。耳に掛けて使う。",
        "万里の長城は煉瓦を積んだ。騎馬民族を防いだ。",
        "チーズは牛乳を固める。黴で熟成させる。",
        "自転車はペダルを漕ぐ。鎖が後輪へ力を伝える。",
        "向日葵は太陽を追う。種から油を搾る。",
        "灯油は原油を蒸留する。暖房に燃やされる。",
        "歌舞伎は役者が見得を切る。花道を通って現れる。",
        "磁石は鉄を引きつける。二つの極を備える。",
        "盆踊りは櫓を囲む。浴衣姿の輪が広がる。",
        "銅貨は鋳型に流し込む。表面に年号を刻印する。",
        "納豆は藁に包む。糸を引くまで寝かせる。",
    )
}
"""Enough passages, with those of `JAPANESE`, for a verdict on an embedding model."""
QUESTIONS = {
    "When did the Akashi Bridge open?": "bridge",
    "How often does the lamp of the lighthouse turn?": "lighthouse",
    "新幹線が開業したのは何年ですか。": "新幹線",
    "将棋の駒は何枚ありますか。": "将棋",
}


def documents(*corpora: dict[str, str], **metadata: Any) -> list[Document]:
    """A document for each text, with its key as id."""
    return [
        Document(id_=name, text=text, metadata=dict(metadata))
        for corpus in corpora
        for name, text in corpus.items()
    ]


class ShortEmbedding(TrigramEmbedding):
    """The same in 64 dimensions, for corpora of many nodes; counts the questions that it embeds."""

    asked: int = Field(default=0, exclude=True)

    def __init__(self, model_name: str = "short", **kwargs: Any) -> None:
        super().__init__(model_name=model_name, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "ShortEmbedding"

    def _embed(self, text: str) -> list[float]:
        return embed(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        self.asked += 1
        return self._embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class EnglishEmbedding(ShortEmbedding):
    """Knows no Japanese: all texts in it are nearly the same to it."""

    @classmethod
    def class_name(cls) -> str:
        return "EnglishEmbedding"

    def _embed(self, text: str) -> list[float]:
        if text.isascii():
            return [*embed(text), 0.0]
        return [*(1e-3 * value for value in embed(f"{len(text)}")), 1.0]


def identity(
    pack: DenseXRetrievalPack, question: Any, **options: Any
) -> list[tuple[str, float | None]]:
    """The ids and scores of what a pack finds."""
    return [(hit.node.node_id, hit.score) for hit in pack.retrieve(question, **options)]


def passage_of(node: BaseNode) -> str:
    """The id of a retrieved node, or of the passage that a retrieved unit leads to."""
    return getattr(node, "index_id", None) or node.node_id


def sources(found: list[NodeWithScore]) -> list[str]:
    """The ids of the documents that retrieved nodes come from."""
    return [hit.node.ref_doc_id or "" for hit in found]
