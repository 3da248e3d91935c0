"""Removal of a model's thoughts, which it writes around its answer, from whole replies and streams.

If a server does not separate thoughts from the answer, they stand between marks: tags such as `<think>`,
`[THINK]` and `◁think▷`, tokens such as `<|begin_of_thought|>`, or the channels of gpt-oss. An answer may also
mention such marks. Their place tells which is which:

- A block before the answer is thoughts, and so is a block after it that begins a line or follows a sentence.
- A closing mark alone ends thoughts, since many chat templates write the opening mark.
- Thoughts after an opening mark that is never closed were cut off: no answer came.
- A mark in code, in quotation marks or within a sentence is only mentioned.
"""

from __future__ import annotations

import re

Mark = re.Match[str]

_NAME = r"(?:seed:|ant)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|analysis|reflection|scratchpad)"
_TOKEN = r"(?:thoughts?|think(?:ing)?|reasoning)"
_WRAPPER = r"(?:final_)?(?:answer|output|response|solution)"
_ATTRIBUTES = r"(?:\s[^<>]{0,200})?"
_MARK = re.compile(
    rf"(?P<empty><{_NAME}{_ATTRIBUTES}/>)"
    rf"|(?P<opening><{_NAME}{_ATTRIBUTES}>|\[{_NAME}\]|◁{_NAME}▷|<\|(?:begin_of_|start_)?{_TOKEN}\|>)"
    rf"|(?P<closing></{_NAME}\s{{0,9}}>|\[/{_NAME}\]|◁/{_NAME}▷|<\|(?:end_of_|end_|/){_TOKEN}\|>)"
    r"|(?P<final><\|channel\|>\s?final[^<]{0,80}(?:<\|constrain\|>[^<]{0,40})?<\|message\|>)"
    r"|(?P<channel><\|start\|>assistant|<\|channel\|>[^<]{0,80}<\|message\|>|\Aanalysis(?=\w))"
    # the final channel where a server left out the special tokens, as for "analysis" above
    r"|(?P<bare_final>assistantfinal)"
    rf"|(?P<wrapper><{_WRAPPER}>|<\|(?:begin_of|start)_{_WRAPPER}\|>)"
    rf"|(?P<wrapper_end></{_WRAPPER}>|<\|(?:end_of|end)_{_WRAPPER}\|>|<\|(?:return|end)\|>)",
    re.IGNORECASE,
)
_LONGEST = 250  # characters of a mark, and of the text examined around it
_PARTIAL = re.compile(
    r"(?:<\|start\|>[a-z]{0,9}|<\|channel\|>[^<]{0,80}(?:<\|constrain\|>[^<]{0,40})?)?"
    r"(?:<(?:[/|a-z][^<>]{0,230})?|\[/?[a-z:]{0,20}|◁[^▷]{0,20})?\Z",
    re.IGNORECASE,
)
_FOLLOWED = re.compile(r"[ \t]{0,20}[^ \t].|[ \t]{21}", re.DOTALL)
_BLANK_TO_END = re.compile(r"\s*\Z")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_LONG_TICKS = re.compile(r"`{3,}")
_QUOTATIONS = ('""', "''", "“”", "‘’", "「」", "『』", "()", "（）")
_LIST_MARKER = re.compile(r"\s*(?:[-*+•|>]|\d{1,3}[.)])\s*")
_SENTENCE_END = re.compile(r"[.!?。！？…\]][\"'”’」』)）*]*\s*\Z")
_PARTICLE_JA = re.compile(r"[。、，」』）がをのにへとでも]|は(?!い)")


def without_thoughts(text: str) -> str:
    """Return a whole reply without thoughts, stripped; empty if no answer came.

    Example:
        >>> without_thoughts("<think>Is it 54? No.</think>\\n\\n240 metres")
        '240 metres'
        >>> without_thoughts("`<think>` opens the block.")
        '`<think>` opens the block.'
    """
    return ThoughtFilter().add(text, is_last=True).strip()


class ThoughtFilter:
    """A filter that removes the thoughts from a reply as it arrives.

    Thoughts without an opening mark are recognised only at their end: `starts_over` then says that everything
    returned before belongs to them.

    Attributes:
        starts_over: Whether the answer begins with what the last call returned.
    """

    def __init__(self) -> None:
        self.starts_over = False
        self._text = ""  # the undecided text, after a little of the text before it
        self._position = 0  # where the undecided text begins
        self._answer: list[str] = []
        self._depth = 0  # of nested thoughts; 0 in the answer
        # the text after a closing mark that may have ended the thoughts
        self._rest: list[str] | None = None
        self._is_blank = True  # whether the answer has no text yet
        self._had_thoughts = False
        self._fences = 0  # code fences in the answer so far
        # whether the last opening mark that the answer mentions ends its line
        self._mentions_block: bool | None = None

    def add(self, delta: str, is_last: bool = False) -> str:
        """Add text that arrived, and return the text that certainly belongs to the answer.

        Args:
            delta: The text that arrived.
            is_last: Whether the reply ends with it.
        """
        self.starts_over = False
        self._answer = []
        self._text += delta
        if not self._position:
            self._text = self._text.lstrip()
        undecided = self._pass_marks(is_last)
        if not is_last:
            self._take(self._certain_end(undecided))
        else:
            self._take(len(self._text))
            rest = "".join(self._rest or ())
            self._answer.append(rest.lstrip())
        begin = max(0, self._position - _LONGEST)
        self._text = self._text[begin:]
        self._position -= begin
        return "".join(self._answer)

    def _pass_marks(self, is_last: bool) -> Mark | None:
        """Consume all marks that can be decided, and return the first one that cannot."""
        while True:
            mark = _MARK.search(self._text, self._position)
            if not mark:
                return None
            if not is_last and not self._is_decidable(mark):
                return mark
            self._take(mark.start())
            if self._passes(mark):
                self._position = mark.end()
            else:
                self._take(mark.end())

    def _passes(self, mark: Mark) -> bool:
        """Consume a mark; return whether it is a mark and not just text."""
        if self._depth:
            return self._pass_in_thoughts(mark)
        return self._pass_in_answer(mark)

    def _is_decidable(self, mark: Mark) -> bool:
        if mark.lastgroup != "wrapper_end":
            return bool(_FOLLOWED.match(self._text, mark.end()))
        if len(self._text) > mark.end() + _LONGEST:
            return True
        return not _BLANK_TO_END.match(self._text, mark.end())

    def _certain_end(self, undecided: Mark | None) -> int:
        """Return the position up to which no mark can begin."""
        if undecided:
            return undecided.start()
        tail = max(self._position, len(self._text) - _LONGEST)
        if self._depth:
            return tail
        if not self._position and "analysis".startswith(self._text.lower()):
            return 0
        partial = _PARTIAL.search(self._text, tail)
        if partial:
            return partial.start()
        return len(self._text)

    def _take(self, end: int) -> None:
        """Consume text up to a position; outside thoughts it becomes part of the answer."""
        text = self._text[self._position : end]
        if not self._depth:
            fences = _FENCE.finditer(self._text, max(0, self._position - 6), end)
            self._fences += sum(fence.end() > self._position for fence in fences)
            if self._is_blank:
                text = text.lstrip()
                self._is_blank = not text
            self._answer.append(text)
        elif self._rest is not None:
            self._rest.append(text)
        self._position = end

    def _pass_in_thoughts(self, mark: Mark) -> bool:
        """Consume a mark in thoughts; return whether it is a mark and not just text of the thoughts."""
        kind = mark.lastgroup
        if kind in ("final", "bare_final"):
            self._begin_answer()
            return True
        if kind not in ("opening", "closing") or self._is_quoted(mark):
            return False
        is_mentioned = self._is_within_sentence(mark)
        if kind == "opening" and not is_mentioned:
            self._depth += 1
        if kind == "closing" and not is_mentioned:
            self._depth -= 1
        if kind == "closing":
            self._rest = []
        if not self._depth:
            self._begin_answer()
        return True

    def _pass_in_answer(self, mark: Mark) -> bool:
        """Consume a mark in the answer; return whether it is a mark and not just text of the answer."""
        kind = mark.lastgroup
        if kind in ("closing", "final"):
            return self._ends_thoughts(mark)
        if kind == "wrapper":
            return self._is_blank and self._had_thoughts
        if kind == "wrapper_end":
            return self._had_thoughts and bool(_BLANK_TO_END.match(self._text, mark.end()))
        if kind == "bare_final":
            return False
        begins_thoughts = self._is_blank or self._follows_a_sentence(mark)
        if kind == "opening":
            self._mentions_block = self._text.startswith("\n", mark.end())
        if kind != "empty":
            self._depth = int(begins_thoughts)
        return begins_thoughts

    def _begin_answer(self) -> None:
        self._depth = 0
        self._rest = None
        self._is_blank = True
        self._had_thoughts = True
        self._fences = 0
        self._mentions_block = None

    def _ends_thoughts(self, mark: Mark) -> bool:
        """Return whether a mark ends thoughts that had no opening mark; if so, begin the answer after it."""
        begins_line = not self._line_before(mark).strip()
        is_pair = self._mentions_block is begins_line
        self._mentions_block = None
        if self._fences % 2 or self._is_quoted(mark):
            return False
        if mark.lastgroup == "closing" and (is_pair or self._is_within_sentence(mark)):
            return False
        self._answer.clear()
        self.starts_over = True
        self._begin_answer()
        return True

    def _follows_a_sentence(self, mark: Mark) -> bool:
        """Return whether a mark begins a line or follows a sentence, and is not an example after a colon."""
        leads_in = self._text_before(mark).rstrip().endswith((":", "："))
        if leads_in or self._fences % 2 or self._is_quoted(mark):
            return False
        line = self._line_before(mark)
        return not line.strip() or _ends_sentence(line)

    def _is_quoted(self, mark: Mark) -> bool:
        """Return whether a mark is in inline code or between quotation marks."""
        line = self._line_before(mark)
        in_code = _LONG_TICKS.sub("", line).count("`") % 2 == 1
        return in_code or line[-1:] + self._text[mark.end() : mark.end() + 1] in _QUOTATIONS

    def _is_within_sentence(self, mark: Mark) -> bool:
        """Return whether a sentence continues at a mark, and so mentions it."""
        line = self._line_before(mark)
        if not line.strip() or _ends_sentence(line):
            return False
        following = self._text[mark.end() : mark.end() + _LONGEST].lstrip(" \t")
        if _PARTICLE_JA.match(following):
            return True
        if line[-1] not in " \t\"'(|":
            return False
        return not following or following[0].islower() or following[0] in ".,;:!?)\"'|"

    def _line_before(self, mark: Mark) -> str:
        """Return the text before a mark in its line, at most its last `_LONGEST` characters."""
        return self._text_before(mark).rpartition("\n")[2]

    def _text_before(self, mark: Mark) -> str:
        return self._text[max(0, mark.start() - _LONGEST) : mark.start()]


def _ends_sentence(line: str) -> bool:
    return bool(_SENTENCE_END.search(line)) and not _LIST_MARKER.fullmatch(line)
