"""From passages to requests, one by one or several at once, and from the replies to sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate

from llama_pack_densex.llm_requests.clients import Transport
from llama_pack_densex.llm_requests.failures import Failure
from llama_pack_densex.llm_requests.reply import Reply
from llama_pack_densex.llm_requests.sending import Question, Sender, Stop
from llama_pack_densex.propositionizers.asking import PassageRun, Request, gather_to_the_end
from llama_pack_densex.propositionizers.base import Passage, PropositionSet
from llama_pack_densex.propositionizers.grouping import group_messages, split_reply
from llama_pack_densex.propositionizers.language import detect_language
from llama_pack_densex.propositionizers.prompts import JAPANESE_PROMPT_KEY, format_request, prompt_key
from llama_pack_densex.propositionizers.recordings import append_recording

GROUPED = "grouped"
"""Tells the kept reply for a passage that was asked for together with others from one to the same passage alone."""


@dataclass(frozen=True)
class PassageRequests:
    """Asks for the propositions of passages.

    Args:
        llm: What formats the prompts are for.
        prompts: By their names.
        sender: Sends the requests.
        max_attempts: Requests for the same text.
        max_requests: Requests for one passage and its parts.
        record_to: The file to record propositions in; None for none.
        passages_per_request: How many are asked for together where they can be.
    """

    llm: LLM
    prompts: Mapping[str, BasePromptTemplate]
    sender: Sender
    max_attempts: int
    max_requests: int
    record_to: str | None
    passages_per_request: int = 1

    def first_question(self, passage: Passage) -> Question:
        """What is asked first about a passage."""
        language = detect_language(passage.text, f"{passage.title}\n{passage.section}")
        return self._question(passage, Request(passage, language))

    async def sets(self, passages: Sequence[Passage], transport: Transport, stop: Stop) -> list[PropositionSet]:
        """Ask for the propositions of passages: in one request if they are several, and singly where that fails."""
        first: Sequence[Reply | None] = [None] * len(passages)
        turn = self.sender.next_turn()  # one for all: what a group left over goes before passages that came later
        if max(len(passages), self.passages_per_request) > 1:  # one that is left over may be kept from a larger group
            first = await self._ask_together(passages, turn, transport, stop)
        return await gather_to_the_end(
            self._ask_for(passage, reply, turn, transport, stop) for passage, reply in zip(passages, first, strict=True)
        )

    async def _ask_for(
        self, passage: Passage, first: Reply | None, turn: int, transport: Transport, stop: Stop
    ) -> PropositionSet:
        """Ask for the propositions of one passage.

        Args:
            passage: The passage.
            first: A reply that is there already; None where there is none.
            turn: Its requests' turn.
            transport: How requests leave.
            stop: Whether they may.
        """
        given = [] if first is None else [first]

        async def ask(request: Request) -> Reply | Failure:
            if given:
                return given.pop()
            return await self.sender.ask(self._question(passage, request, turn), transport, stop)

        made = await PassageRun(passage, ask, max_attempts=self.max_attempts, max_requests=self.max_requests).run()
        if self.record_to is not None and made.texts and made.status != "fallback":
            append_recording(self.record_to, passage, made)
        return made

    async def _ask_together(
        self, passages: Sequence[Passage], turn: int, transport: Transport, stop: Stop
    ) -> list[Reply | None]:
        """The first replies for several passages: those that are kept, and for the others one for all with one prompt.

        None stands where a passage is to be asked for by itself.
        """
        replies: list[Reply | None] = [None] * len(passages)
        missing: dict[tuple[str, str], list[int]] = {}
        questions = [self.first_question(passage) for passage in passages]
        for place, (passage, question) in enumerate(zip(passages, questions, strict=True)):
            kept = await self.sender.look_up(self.sender.key(question, GROUPED), transport)
            if isinstance(kept, Reply):
                replies[place] = kept
            elif passage.text.strip() and not await self.sender.has(self.sender.key(question), transport):
                language = detect_language(passage.text, f"{passage.title}\n{passage.section}")
                # a prompt of the user's may name the title ahead of the last message, which a group has but once
                ahead = repr([(message.role, message.content) for message in question.messages[:-1]])
                missing.setdefault((prompt_key(language), ahead), []).append(place)
        for (name, _), places in missing.items():
            if len(places) < 2:
                continue
            together = [passages[place] for place in places]
            lists = await self._ask_group(name, together, turn, transport, stop)
            for place, found in zip(places, lists, strict=True):
                if found is not None:
                    replies[place] = Reply(found, "stop")
                    key = self.sender.key(questions[place], GROUPED)
                    await self.sender.keep(key, Reply(found, "stop"), transport)
        return replies

    async def _ask_group(
        self, name: str, passages: Sequence[Passage], turn: int, transport: Transport, stop: Stop
    ) -> Sequence[str | None]:
        language = "ja" if name == JAPANESE_PROMPT_KEY else detect_language(passages[0].text)
        messages = group_messages(self.prompts[name], self.llm, passages, language)
        text = "\n\n".join(passage.text for passage in passages)
        reply = await self.sender.ask_anew(Question(text, text, messages, turn=turn), transport, stop)
        # a failure may be the matter of one of them
        return [None] * len(passages) if isinstance(reply, Failure) else split_reply(reply.text, passages)

    def _question(self, passage: Passage, request: Request, turn: int | None = None) -> Question:
        prompt = self.prompts[prompt_key(request.language)]
        messages = format_request(prompt, self.llm, request.passage, request.note)
        return Question(passage.text, request.passage.text, messages, request.attempt, turn)
