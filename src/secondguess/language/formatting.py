"""Rows as tokens: a prompt and two responses become one sequence, prompt, y1, y2.

Training on pairs is only this change of the data format. The second response starts at the same
position whatever the length of the first (appendix E found that this matters), in one of two
layouts:

- `positions` (default): no token is added. `position_ids` jump instead: y1's end token sits on the
  last of the `response_length` positions that belong to y1, and y2 starts right behind it.
- `padded`: as in the paper, y1 is filled with end tokens up to `response_length`.

Only response tokens and the end of each response are scored. Nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from transformers import PreTrainedTokenizerBase

from secondguess._arrays import check_at_least
from secondguess._files import read_document, read_record, write_document

Layout = Literal["positions", "padded"]
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""Text, tokens, or the messages of a chat."""
Response = str | Sequence[int]
"""Text or tokens."""

_FILE_NAME = "pair_format.json"
_KIND, _FORMAT = "secondguess pair format", 1


class FormatError(ValueError):
    """A row that cannot become a pair; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class PairFormat:
    """How pairs are laid out; it is saved beside the model, which only understands its own format.

    >>> PairFormat(response_length=10).layout
    'positions'

    Attributes:
        response_length: how many positions a response owns, its end token included.
        layout: `positions` or `padded`; see the module.
        separator: text put before each response, such as `<SEP>` or a line break.
    """

    response_length: int
    layout: Layout = "positions"
    separator: str = ""

    def __post_init__(self) -> None:
        check_at_least("response_length", self.response_length, 2)
        if self.layout not in get_args(Layout):
            raise ValueError(
                f"layout is {self.layout!r}; expected one of {', '.join(get_args(Layout))}."
            )

    def save(self, directory: Path | str) -> None:
        """Write the format beside a model."""
        write_document(Path(directory, _FILE_NAME), _KIND, _FORMAT, asdict(self))

    @classmethod
    def load(cls, directory: Path | str) -> PairFormat:
        """Read the format beside a model that was trained on pairs."""
        path = Path(directory, _FILE_NAME)
        if not path.is_file():
            raise ValueError(
                f"{path} is missing: {directory} was not trained on pairs. Train it with "
                f"`secondguess fit`, or save the format you trained with (PairFormat.save)."
            )
        content = read_document(path, _KIND, _FORMAT, what="a pair format")
        return read_record(cls, content, str(path))


class EncodedRow(NamedTuple):
    """A prompt with its responses, as tokens; every response ends in the end token.

    Whatever takes a row takes an encoded one too, and then uses its tokens as they are. A prompt to
    be answered is a row without responses.

    Attributes:
        prompt: the tokens before a first response, the separator included.
        responses: the tokens of each response, its end included.
    """

    prompt: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...] = ()


AnyRow = Mapping[str, Any] | EncodedRow
"""A mapping with a prompt and its responses, or the tokens of both."""


class PairTokens(NamedTuple):
    """One laid-out sequence: tokens, their positions, and whether each is scored."""

    tokens: list[int]
    positions: list[int]
    scored: list[bool]


class PairFormatter:
    """Turns prompts and responses into tokens, and two responses into one sequence.

    >>> from secondguess.language.tokenizer import word_tokenizer
    >>> tokenizer = word_tokenizer(["say", "six", "or", "seven"])
    >>> formatter = PairFormatter(tokenizer, PairFormat(response_length=4))
    >>> row = formatter.encode({"prompt": "say", "responses": ["six", "six or seven"]})
    >>> row
    EncodedRow(prompt=(1, 2), responses=((3, 0), (3, 4, 5, 0)))
    >>> pair = formatter.lay_out(row.prompt, *row.responses)
    >>> pair.tokens
    [1, 2, 3, 0, 3, 4, 5, 0]
    >>> pair.positions
    [0, 1, 2, 5, 6, 7, 8, 9]

    Args:
        tokenizer: any tokenizer of `transformers` with an end token; a padding token is not needed.
        config: the layout.
        context_length: how many positions the model has, if it has a limit.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        config: PairFormat,
        *,
        context_length: int | None = None,
    ) -> None:
        if tokenizer.eos_token_id is None:
            raise ValueError(
                "the tokenizer has no end token (eos_token); set one, because the end of a "
                "response is part of the response."
            )
        self.tokenizer = tokenizer
        self.config = config
        self.context_length = context_length
        self.end: int = tokenizer.eos_token_id  # pyright: ignore[reportAttributeAccessIssue]
        self.separator = self._tokens(config.separator) if config.separator else ()
        self._pieces: dict[int, str] = {}
        self.max_prompt_length: int | None = None
        """How many tokens a prompt may have, its separator included."""
        if context_length is not None:
            self.max_prompt_length = (
                context_length - 2 * config.response_length - len(self.separator)
            )
            if self.max_prompt_length < 1:
                raise ValueError(
                    f"two responses of {config.response_length} positions leave no room for a "
                    f"prompt in the model's context of {context_length}; lower response_length."
                )

    def _tokens(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        try:
            return tuple(self.tokenizer(text, add_special_tokens=special).input_ids)
        except Exception as error:  # `tokenizers` raises nothing narrower for an unknown word
            raise FormatError(f"the tokenizer cannot encode {text!r} ({error}).") from None

    def _chat_tokens(self, messages: list[Any]) -> tuple[int, ...]:
        try:
            encoding: Any = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=True
            )
        except Exception as error:  # templates raise what they like, about roles and their order
            raise FormatError(f"the chat template refuses the messages ({error}).") from None
        return tuple(encoding["input_ids"])

    def _known(self, tokens: Sequence[Any]) -> tuple[int, ...]:
        size = len(self.tokenizer)
        for token in tokens:
            if isinstance(token, bool) or not 0 <= token < size:
                raise FormatError(f"there is no token {token}; expected numbers below {size}.")
        return tuple(tokens)

    def prompt_tokens(self, prompt: Prompt | EncodedRow) -> tuple[int, ...]:
        """The tokens before a first response: the prompt, then the separator."""
        if isinstance(prompt, EncodedRow):
            return prompt.prompt
        if isinstance(prompt, str):
            tokens = self._tokens(prompt, special=True)
        elif isinstance(prompt, list) and prompt and isinstance(prompt[0], Mapping):
            if self.tokenizer.chat_template is None:
                raise FormatError(
                    "the prompt is a list of chat messages, but the tokenizer has no chat "
                    "template; pass text, or set tokenizer.chat_template."
                )
            tokens = self._chat_tokens(prompt)
        elif isinstance(prompt, Sequence) and all(isinstance(token, int) for token in prompt):
            tokens = self._known(prompt)
        else:
            raise FormatError(
                f"the prompt is {prompt!r}; expected text, chat messages (role and content) or "
                f"tokens."
            )
        tokens += self.separator
        if not tokens:
            raise FormatError("the prompt is empty; expected at least one token.")
        if self.max_prompt_length is not None and len(tokens) > self.max_prompt_length:
            raise FormatError(
                f"the prompt has {len(tokens)} tokens, which leaves no room for two responses of "
                f"{self.config.response_length} in the model's context of {self.context_length}; "
                f"expected at most {self.max_prompt_length}."
            )
        return tokens  # pyright: ignore[reportReturnType]

    def response_tokens(self, response: Response) -> tuple[int, ...]:
        """The tokens of a response, with the end token behind them."""
        if isinstance(response, str):
            tokens = self._tokens(response)
        elif isinstance(response, Sequence) and all(isinstance(token, int) for token in response):
            tokens = self._known(response)
        else:
            raise FormatError(f"a response is {response!r}; expected text or tokens.")
        if tokens and tokens[-1] == self.end:
            tokens = tokens[:-1]
        if not tokens:
            raise FormatError("a response is empty; expected at least one token.")
        if self.end in tokens:
            raise FormatError(
                f"a response holds the end token {self.tokenizer.eos_token!r} before its end; "
                f"remove it."
            )
        if len(tokens) + 1 > self.config.response_length:
            raise FormatError(
                f"a response has {len(tokens) + 1} tokens with its end; expected at most "
                f"{self.config.response_length} (response_length)."
            )
        return (*tokens, self.end)

    def encode(self, row: AnyRow, *, min_responses: int = 2) -> EncodedRow:
        """The tokens of `{"prompt": ..., "responses": [...]}`."""
        if not isinstance(row, EncodedRow):
            missing = {"prompt", "responses"} - set(row)
            if missing:
                raise FormatError(
                    f"the row has the keys {sorted(row)}; expected prompt and responses (in "
                    f"transformers.Trainer, set remove_unused_columns=False)."
                )
        responses = row.responses if isinstance(row, EncodedRow) else row["responses"]
        if isinstance(responses, str) or not isinstance(responses, Sequence):
            raise FormatError(f"responses is {responses!r}; expected a list of responses.")
        if len(responses) < min_responses:
            raise FormatError(
                f"the prompt has {len(responses)} response(s); expected at least {min_responses} "
                f"(drop the row, or collect another response)."
            )
        if isinstance(row, EncodedRow):
            return row
        prompt = self.prompt_tokens(row["prompt"])
        return EncodedRow(prompt, tuple(self.response_tokens(each) for each in responses))

    def encode_prompt(self, row: Mapping[str, Any]) -> EncodedRow:
        """The tokens of `{"prompt": ...}`, a row whose responses, if any, are not looked at."""
        if "prompt" not in row:
            raise FormatError(f"the row has the keys {sorted(row)}; expected prompt.")
        return EncodedRow(self.prompt_tokens(row["prompt"]))

    def text(self, tokens: Sequence[int]) -> str:
        """A response as text, without its end."""
        kept = list(tokens[:-1] if tokens and tokens[-1] == self.end else tokens)
        return self.tokenizer.decode(kept)  # pyright: ignore[reportReturnType]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as text of its own."""
        # A tokenizer takes some microseconds per call, whatever it decodes, and tokens come again.
        for token in {*tokens} - self._pieces.keys():
            self._pieces[token] = str(self.tokenizer.decode([token]))
        return [self._pieces[token] for token in tokens]

    def lay_out_responses(
        self, start: int, first: Sequence[int], second: Sequence[int]
    ) -> PairTokens:
        """Everything behind a prompt of `start` tokens: y1, its end, the separator, y2, its end."""
        length = self.config.response_length
        last = start + length - 1
        tokens, scored = [*first], [True] * len(first)
        if self.config.layout == "padded":
            filler = length - len(first)
            tokens += [self.end] * filler
            scored += [False] * filler
            positions = list(range(start, start + length))
        else:
            # The end token does what the last padding token does in the other layout: the next
            # response is predicted from the same position, whatever the length of this one.
            positions = [*range(start, start + len(first) - 1), last]
        tokens += self.separator
        tokens += second
        scored += [False] * len(self.separator) + [True] * len(second)
        positions += range(last + 1, last + 1 + len(self.separator) + len(second))
        return PairTokens(tokens, positions, scored)

    def lay_out(
        self, prompt: Sequence[int], first: Sequence[int], second: Sequence[int]
    ) -> PairTokens:
        """One whole sequence: prompt, y1, y2."""
        behind = self.lay_out_responses(len(prompt), first, second)
        return PairTokens(
            [*prompt, *behind.tokens],
            [*range(len(prompt)), *behind.positions],
            [False] * len(prompt) + behind.scored,
        )
