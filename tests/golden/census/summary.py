"""Counts the results of load.lua, objects.lua and reload.py.

    python summary.py FOLDER        how many cases agree, and which do not, with the reasons
"""

import collections
import json
import os
import sys

VERDICTS = ("agree", "differ", "refused", "fail", "crash")


def lines_of(path):
    with open(path) as file:
        for line in file:
            yield (line.rstrip("\n").split("\t") + ["", ""])[:4]


def results(folder, name, by_number):
    """(number, what) -> (verdict, message); a case that began and has no more lines has ended the process, unless Keras
    has made no file of it that it can read."""
    found, begun = {}, set()
    for number, what, verdict, message in lines_of(os.path.join(folder, name)):
        if what == "begun":
            begun.add(int(number))
        else:
            found[int(number), what] = verdict, message
    for number in begun - {n for n, _ in found}:
        if "yes" not in (by_number[number]["keras"], by_number[number]["h5"]):
            continue
        found[number, "keras"] = "crash", "the process ended"
    return found


def table(found):
    counts = collections.Counter((what, verdict) for (_, what), (verdict, _) in found.items())
    for what in sorted({what for what, _ in counts}):
        print(f"{what:14}", "  ".join(f"{v} {counts[what, v]}" for v in VERDICTS if counts[what, v]))


def main(folder):
    layers = os.path.exists(os.path.join(folder, "cases.json"))
    cases = json.load(open(os.path.join(folder, "cases.json" if layers else "objects.json")))
    by_number = {case["number"]: case for case in cases}
    found = results(folder, "results.tsv" if layers else "objects.tsv", by_number)
    recorded = [case for case in cases if "left_out" not in case]
    print(len(cases), "cases,", len(recorded), "recorded")
    for reason, n in collections.Counter(c["left_out"].split(": ")[0] for c in cases if "left_out" in c).most_common():
        print(f"    {n} left out: {reason}")
    table(found)
    if layers:
        for ending in ("keras", "h5"):
            print(sum(c[ending] != "yes" for c in recorded), f"files .{ending} that Keras cannot read itself")
        classes = {c["class"] for c in recorded}
        agree = {by_number[n]["class"] for (n, what), (v, _) in found.items()
                 if what in ("keras", "h5") and v == "agree"}
        print(len(agree), "of", len(classes), "classes have a case that agrees; not", *sorted(classes - agree))
    for (number, what), (verdict, message) in sorted(found.items()):
        if verdict != "agree":
            case = by_number[number]
            print(number, case["class"], case["test"].split("::")[-1], what, verdict, message[:200])


if __name__ == "__main__":
    main(sys.argv[1])
