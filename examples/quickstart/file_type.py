"""Tells what kind of file some bytes are: Google's Magika, ``standard_v3_3``.

What is done before and after the network is what the ``magika`` package does in its
``HIGH_CONFIDENCE`` mode, so that both answer alike.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx_model import open_session, package_file

from treadle import ModelContext, TensorSpec


class FileType:
    """``content`` BYTES [batch] to ``label`` BYTES [batch] and ``score`` FP32 [batch].

    ``content`` is a whole file. The network sees the first and the last kilobyte of it, blanks at
    either end not counted, so a file's beginning alone is labelled well too, if less surely.
    """

    def __init__(self, context: ModelContext) -> None:
        self.inputs = [TensorSpec("content", "BYTES", (-1,))]
        self.outputs = [TensorSpec("label", "BYTES", (-1,)), TensorSpec("score", "FP32", (-1,))]

        folder = package_file("magika", "models", "standard_v3_3")
        self._rules = _Rules(
            config=json.loads((folder / "config.min.json").read_bytes()),
            knowledge=json.loads(
                package_file("magika", "config", "content_types_kb.min.json").read_bytes()
            ),
        )
        self._session = open_session(folder / "model.onnx", context.threads)

    def __call__(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        contents: list[bytes] = inputs["content"].tolist()
        labels = [""] * len(contents)
        scores = np.ones(len(contents), dtype=np.float32)

        for_network = []
        for index, content in enumerate(contents):
            if self._rules.long_enough(content):
                for_network.append(index)
            else:
                labels[index] = self._rules.label_of_short(content)

        if for_network:
            features = np.stack([self._rules.features(contents[index]) for index in for_network])
            (probabilities,) = self._session.run(["target_label"], {"bytes": features})
            for index, row in zip(for_network, probabilities, strict=True):
                labels[index], scores[index] = self._rules.label_of_prediction(row)

        return {
            "label": np.array([label.encode() for label in labels], dtype=object),
            "score": scores,
        }


class _Rules:
    """Magika's rules around the network, read from its configuration files."""

    def __init__(self, config: dict[str, Any], knowledge: dict[str, Any]) -> None:
        self._begin_size: int = config["beg_size"]
        self._end_size: int = config["end_size"]
        self._block_size: int = config["block_size"]
        self._padding: int = config["padding_token"]
        self._minimum_size: int = config["min_file_size_for_dl"]
        self._labels: list[str] = config["target_labels_space"]
        self._overwrites: dict[str, str] = config["overwrite_map"]
        self._thresholds: dict[str, float] = config["thresholds"]
        self._default_threshold: float = config["medium_confidence_threshold"]
        self._text_labels = {label for label, facts in knowledge.items() if facts["is_text"]}

    def long_enough(self, content: bytes) -> bool:
        """Whether a file has enough bytes, leading blanks apart, for the network to judge it."""
        return len(content[: self._block_size].lstrip()) >= self._minimum_size

    def label_of_short(self, content: bytes) -> str:
        """Label a file that is too short for the network."""
        if not content:
            return "empty"
        try:
            content[: self._block_size].decode()
        except UnicodeDecodeError:
            return "unknown"
        return "txt"

    def features(self, content: bytes) -> NDArray[np.int32]:
        """Lay out the first and last bytes as the network wants them.

        Returns:
            Token numbers of shape ``[begin_size + end_size]``: bytes, or padding in between.
        """
        begin = content[: self._block_size].lstrip()[: self._begin_size]
        end = content[-self._block_size :].rstrip()[-self._end_size :]
        tokens = np.full(self._begin_size + self._end_size, self._padding, dtype=np.int32)
        tokens[: len(begin)] = np.frombuffer(begin, dtype=np.uint8)
        tokens[len(tokens) - len(end) :] = np.frombuffer(end, dtype=np.uint8)
        return tokens

    def label_of_prediction(self, probabilities: NDArray[np.float32]) -> tuple[str, float]:
        """Choose the likeliest label, or a general one where the network is not sure.

        Args:
            probabilities: One for each label the network knows; shape ``[labels]``.
        """
        best = int(probabilities.argmax())
        predicted, score = self._labels[best], float(probabilities[best])
        label = self._overwrites.get(predicted, predicted)
        if score < self._thresholds.get(predicted, self._default_threshold):
            label = "txt" if label in self._text_labels else "unknown"
        return label, score
