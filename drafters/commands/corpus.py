"""Answers of a corpus by an engine: ``python -m drafters.corpus CONFIG --engine URL [--out FILE]``.

The training prompts of CONFIG are sent to an OpenAI-compatible server that serves its target (vLLM, or ``python -m
drafters.serve``), many at a time, and the answers kept as token ids with their finish reasons. The same command again
asks for those that are missing. A training then reads them: ``--set corpus.answers=FILE``.

Greedy answers are what the built-in loop gives, but for ties that rounding decides; ``--temperature`` samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.errors import DataError, Parser, UsageError
from drafters.config import load_config
from drafters.corpus.answers import AnswerFile, asked_of
from drafters.progress import progress
from drafters.prompts.identity import messages
from drafters.serving.answers import Question, Sampling, ask_all
from drafters.serving.process import served_model
from drafters.target.frozen import Target


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.corpus", description="Ask an engine for the answers of a corpus.")
    parser.add_argument("config", help="YAML configuration of an arm")
    parser.add_argument("--engine", required=True, metavar="URL", help="an OpenAI-compatible server of the target")
    parser.add_argument("--model", help="its name there (default: the first that the server names)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: <name of the configuration>-answers.jsonl")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--concurrency", type=int, default=64, help="requests in flight (64)")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="of a request (600)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the sampling (0)")
    args = parser.parse_args(argv)
    if args.concurrency < 1 or args.timeout <= 0 or args.temperature < 0:
        raise UsageError("--concurrency and --timeout must be above 0, --temperature 0 or more")
    config = load_config(args.config, args.overrides)
    if config.corpus.given_answers:
        raise UsageError(f"{args.config}: corpus.given_answers takes the answers in the data; there is nothing to ask")
    model = args.model or served_model(args.engine)
    target = Target.of_run(config.model_dump(), "cpu")
    sampling = Sampling(args.temperature, args.top_p, args.seed)
    path = args.out or Path(f"{config.name}-answers.jsonl")
    header = asked_of(target, config.corpus.max_new_tokens)
    file = AnswerFile(path, {**header, "model": model, "sampling": sampling.fields()})
    questions, total = [], 0
    for prompt in config.corpus.training_prompts():
        tokens = target.encode_chat(messages(prompt))
        room = min(config.corpus.max_new_tokens, config.corpus.max_length - len(tokens))
        if room < 2:  # as the built-in loop leaves them out
            continue
        total += 1
        if prompt.prompt_id not in file.done:
            questions.append(Question(prompt.prompt_id, tokens, room))
    held = len(file.done)
    try:
        with progress(f"answers of {config.name}", total, total - len(questions)) as tick:

            def take(key: str, tokens: list[int], reason: str) -> None:
                file.add(key, tokens, reason)
                tick(total - len(questions) + len(file.done) - held, "")

            found = ask_all(
                args.engine, model, questions, take, sampling=sampling, stop_ids=target.stop_ids,
                concurrency=args.concurrency, timeout_s=args.timeout,
            )  # fmt: skip
    finally:
        file.close()
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(found.answered.items()))
    print(
        f"{path}: {sum(found.answered.values())} new answers ({reasons or 'none'}), {found.retries} requests repeated"
    )
    if failed := sum(found.failed.values()):
        why = ", ".join(f"{count} x {reason}" for reason, count in sorted(found.failed.items()))
        raise DataError(f"{path}: {failed} of {total} prompts have no answer ({why}); the same command asks again")
    return 0
