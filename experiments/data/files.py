"""Where data sets lie that no package holds: files and folders, as their makers distribute them."""

from pathlib import Path

from experiments.data.archives import FOLDER

SOURCES = {
    "cifar-10-batches-py": "CIFAR-10's Python version, of cs.toronto.edu/~kriz/cifar.html, unpacked",
    "cifar-100-python": "CIFAR-100's Python version, of cs.toronto.edu/~kriz/cifar.html, unpacked",
    "CIFAR-10_human.pt": "CIFAR-10N's labels, of github.com/UCSC-REAL/cifar-10-100n (not for commerce)",
    "CIFAR-100_human.pt": "CIFAR-100N's labels, of github.com/UCSC-REAL/cifar-10-100n (not for commerce)",
    "20news-bydate-train": "20news-bydate.tar.gz, of qwone.com/~jason/20Newsgroups, unpacked",
    "20news-bydate-test": "20news-bydate.tar.gz, of qwone.com/~jason/20Newsgroups, unpacked",
    "emotion": "dair-ai/emotion of huggingface.co: parquet files, or JSON lines, of every split",
    "GLUE": "gluebenchmark.com/tasks: each task's archive, unpacked beside the others",
    "pile": "monology/pile-uncopyrighted of huggingface.co: its train and val .jsonl.zst",
    "gpt-neo-125m": "the model EleutherAI/gpt-neo-125m of huggingface.co, tokenizer included",
    "bert-base-uncased": "the model google-bert/bert-base-uncased of huggingface.co, tokenizer included",
}
"""By the first part of a path: what it is, and where it is to be had."""


def find(path: str, folder: Path | None = None) -> Path:
    """Return a file or folder of a data set or model.

    Raises
    ------
    FileNotFoundError
        If it is not there: what was expected where, and where it is to be had.
    """
    whole = (folder or FOLDER) / path
    if not whole.exists():
        msg = f"{path}: expected it at {whole}; it comes with {SOURCES[Path(path).parts[0]]}"
        raise FileNotFoundError(msg)
    return whole
