"""What answers amount to: accuracies with intervals, bias by position, what is guessed without the clip."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP
from vidvec_msg.retrieval.mcq.question import Answer, Question
from vidvec_msg.retrieval.mcq.sitting import CONTROL, SHOWN, Sitting

_Z = 1.959964  # 97.5% quantile of the normal distribution
_BIASED = 0.15  # a letter that is chosen so much oftener than it is right is told of


def accuracy(right: int, count: int) -> dict[str, Any]:
    """A share with its 95% interval.

    The interval is Wilson's: unlike a bootstrap's it does not shrink to nothing where all answers of a small
    group are right.

    Returns:
        ``value``, ``low``, ``high`` (0 to 1, None without questions) and ``questions``.
    """
    if not count:
        return {"value": None, "low": None, "high": None, "questions": 0}
    share = right / count
    spread = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    middle, scale = share + _Z**2 / (2 * count), 1 + _Z**2 / count
    low, high = max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
    return {"value": share, "low": low, "high": high, "questions": count}


def guessable(sittings: Sequence[Sitting]) -> list[str]:
    """Questions that every answerer answers right without the clip (AVMeme Exam §2.2: text cheat).

    Args:
        sittings: of all answerers; those without such a round do not count.

    Returns:
        ids, in the order of the questions; nothing if nobody was asked without the clip.
    """
    controls = [one for one in sittings if one.rounds.get(CONTROL)]
    if not controls:
        return []
    return [
        question.id
        for question in controls[0].asked[CONTROL]
        if all(_is_right(one.rounds[CONTROL].get(question.id), question) for one in controls)
    ]


def summary(sitting: Sitting, flagged: Iterable[str] = ()) -> dict[str, Any]:
    """One answerer's part of ``report.json``.

    Questions that could not be answered (a broken clip) count nowhere and are listed; an answer that could
    not be read counts as wrong.

    Args:
        sitting: what it did.
        flagged: ids of questions that are guessable without the clip.
    """
    questions, answers, flagged = sitting.asked[SHOWN], sitting.rounds[SHOWN], set(flagged)
    found = {
        "name": sitting.name,
        "spec": sitting.spec,
        "fingerprint": sitting.fingerprint,
        "accuracy": _of(questions, answers) | {"chance": _chance(questions, answers)},
        "without_guessable": _of([one for one in questions if one.id not in flagged], answers),
        "unreadable": sum(answer.chosen is None for answer in answers.values()),
        "tied": sum(answer.tied for answer in answers.values()),
        "failed": [{"question": one.item, "reason": one.reason} for one in sitting.failures[SHOWN]],
        "groups": _groups(questions, answers),
        "letters": _letters(questions, answers),
        "rotated": _rotated(sitting),
        "control": None,
        "letter_mass": _mean([answer.mass for answer in answers.values() if answer.mass is not None]),
    }
    if CONTROL in sitting.rounds:
        control = sitting.rounds[CONTROL]
        found["control"] = _of(sitting.asked[CONTROL], control) | {
            "unreadable": sum(answer.chosen is None for answer in control.values()),
            "failed": len(sitting.failures[CONTROL]),
        }
    return found | {"warnings": _warnings(found, sitting)}


def _of(questions: Iterable[Question], answers: Mapping[str, Answer]) -> dict[str, Any]:
    answered = [one for one in questions if one.id in answers]
    return accuracy(sum(_is_right(answers[one.id], one) for one in answered), len(answered))


def _is_right(answer: Answer | None, question: Question) -> bool:
    return answer is not None and answer.chosen == question.right


def _chance(questions: Iterable[Question], answers: Mapping[str, Answer]) -> float | None:
    return _mean([one.chance for one in questions if one.id in answers])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _groups(
    questions: Sequence[Question], answers: Mapping[str, Answer]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Group → value → accuracy, chance, and whether the group is small."""
    members: dict[str, dict[str, list[Question]]] = {}
    for one in questions:
        for key, value in one.groups.items():
            members.setdefault(key, {}).setdefault(value, []).append(one)
    return {
        key: {
            value: (found := _of(ones, answers))
            | {"chance": _chance(ones, answers), "small": found["questions"] < SMALL_GROUP}
            for value, ones in sorted(values.items())
        }
        for key, values in sorted(members.items())
    }


# --- position -------------------------------------------------------------------------------------------


def _letters(questions: Sequence[Question], answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    """Letter → how often it is right, how often it is chosen, and accuracy where it is right."""
    answered = [one for one in questions if one.id in answers]
    chosen = Counter(one.letters[place] for one in answered if (place := answers[one.id].chosen) is not None)
    found = {}
    for letter in max((one.letters for one in answered), key=len, default=""):
        here = [one for one in answered if one.letters[one.right] == letter]
        found[letter] = {"right": len(here), "chosen": chosen[letter], "accuracy": _of(here, answers)}
    return found


def _rotated(sitting: Sitting) -> dict[str, Any] | None:
    """What changes when every option stands at another letter; None if that was not tried.

    ``same`` is the share of questions whose option is the same in every round; ``always_right`` the share
    that is answered right in every round.
    """
    names = [name for name in sitting.rounds if name.startswith(SHOWN)]
    if len(names) < 2:
        return None
    rounds = {name: _of(sitting.asked[name], sitting.rounds[name]) for name in names}
    chosen: dict[str, list[str | None]] = {}
    right: dict[str, list[bool]] = {}
    for name in names:
        for question in sitting.asked[name]:
            if question.id in sitting.rounds[name]:
                answer = sitting.rounds[name][question.id]
                option = None if answer.chosen is None else question.options[answer.chosen].id
                chosen.setdefault(question.id, []).append(option)
                right.setdefault(question.id, []).append(_is_right(answer, question))
    several = [name for name, options in chosen.items() if len(options) > 1]
    steady = sum(len(set(chosen[name])) == 1 and chosen[name][0] is not None for name in several)
    return {
        "rounds": rounds,
        "same": accuracy(steady, len(several)),
        "always_right": accuracy(sum(all(right[name]) for name in several), len(several)),
    }


def _warnings(found: Mapping[str, Any], sitting: Sitting) -> list[str]:
    warnings = []
    count = found["accuracy"]["questions"]
    for letter, one in found["letters"].items() if sitting.sees_letters and count >= SMALL_GROUP else ():
        if (one["chosen"] - one["right"]) / count > _BIASED:
            warnings.append(
                f"the letter {letter} is chosen in {100 * one['chosen'] / count:.0f}% of the answers and "
                f"right in {100 * one['right'] / count:.0f}%"
            )
    if found["unreadable"]:
        warnings.append(f"{found['unreadable']:,} answers could not be read and count as wrong")
    if found["tied"]:
        warnings.append(f"{found['tied']:,} questions have several options of the same highest score")
    if found["failed"]:
        warnings.append(f"{len(found['failed']):,} questions could not be answered and count nowhere")
    if found["letter_mass"] is not None and found["letter_mass"] < 0.5:
        warnings.append(
            f"the letters have {100 * found['letter_mass']:.0f}% of the probability at the answer's first "
            "position: the model would begin with something else"
        )
    return warnings
