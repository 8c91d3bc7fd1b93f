"""Judges a report of wstest: FILE MODE NUMBER-OF-CASES KNOWN. Each case has to end well, or as
KNOWN says. Runs on Python 2.7 and 3."""

from __future__ import print_function

import io
import json
import os
import sys

GOOD = ("OK", "INFORMATIONAL")


def order(case):
    return [int(number) for number in case.split(".")]


def main():
    path, mode, expected, known_path = sys.argv[1:]
    known = {}
    with io.open(known_path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                its_mode, case, behavior, close, _reason = line.split(None, 4)
                if its_mode == mode:
                    known[case] = (behavior, close)
    with io.open(path, encoding="utf-8") as file:
        agents = json.load(file)
    if len(agents) != 1:
        sys.exit("%d agents are in the report, and not one" % len(agents))
    (cases,) = agents.values()
    counts, bad, told = {}, [], 0
    for case in sorted(cases, key=order):
        result = cases[case]
        # Its names have spaces: `WRONG CODE`.
        ends = tuple(result[name].replace(" ", "-") for name in ("behavior", "behaviorClose"))
        counts[ends] = counts.get(ends, 0) + 1
        if not all(end in GOOD for end in ends):
            if known.get(case) == ends:
                told += 1
                continue
            bad.append(case)
            with io.open(os.path.join(os.path.dirname(path), result["reportfile"])) as file:
                detail = json.load(file)
            print("%s: %s, close: %s, code %s, %s ms" % (
                (case,) + ends + (result["remoteCloseCode"], result["duration"])))
            print("    %s" % detail["result"])
            print("    %s" % detail["resultClose"])
            print("    expected %.300s" % json.dumps(detail["expected"]))
            print("    received %.300s" % json.dumps(detail["received"]))
    with io.open(os.path.join(os.path.dirname(path), "bad"), "w") as file:
        file.write(u" ".join(bad) + u"\n")
    text = ", ".join("%d %s/%s" % ((counts[ends],) + ends) for ends in sorted(counts))
    print("%d cases: %s; %d of them as known" % (len(cases), text, told))
    if len(cases) != int(expected):
        sys.exit("there are reports of %d cases, and %s ran" % (len(cases), expected))
    if bad:
        sys.exit("%d cases end otherwise than they have to: %s" % (len(bad), " ".join(bad)))


main()
