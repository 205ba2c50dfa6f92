#!/usr/bin/env python3
"""Writes the GGUF files of bench/gguf_test.cpp with the `gguf` package, not with our own code.

usage: make_gguf.py FOLDER

Weight bytes follow a formula that the test repeats (weight_bytes below), so the test can tell every
slab from every other one. All code bytes are legal; scale bytes are legal UE4M3 codes around 1.
"""

import pathlib
import sys

# Exit status that CTest is told to read as "skipped".
SKIP = 77

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; install tests/requirements.txt")
    sys.exit(SKIP)

if not hasattr(gguf.GGMLQuantizationType, "NVFP4"):
    print("skipped: this gguf package knows no NVFP4; install tests/requirements.txt")
    sys.exit(SKIP)

NVFP4 = gguf.GGMLQuantizationType.NVFP4
HIDDEN, INTER, EXPERTS, TOP_K, LAYER = 256, 128, 6, 2, 3
BLOCK_VALUES, BLOCK_BYTES = 64, 36


def weight_bytes(seed: int, experts: int, rows: int, columns: int) -> "np.ndarray":
    """NVFP4 blocks [experts, rows, columns / 64 * 36]: byte i of a tensor is
    ((i + seed) * 2654435761 mod 2^32) >> 24, and in scale bytes (byte & 7) | 0x38."""
    row_bytes = columns // BLOCK_VALUES * BLOCK_BYTES
    index = np.arange(experts * rows * row_bytes, dtype=np.uint64)
    mixed = ((index + np.uint64(seed)) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    data = (mixed >> np.uint64(24)).astype(np.uint8)
    is_scale = index % BLOCK_BYTES < 4
    data[is_scale] = (data[is_scale] & 7) | 0x38
    return data.reshape(experts, rows, row_bytes)


def scales(seed: int) -> "np.ndarray":
    return (0.01 * (1 + seed + np.arange(EXPERTS))).astype(np.float32)


def open_writer(path: pathlib.Path, alignment: int | None = None) -> "gguf.GGUFWriter":
    writer = gguf.GGUFWriter(path, "qwen3moe")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    # Metadata of every kind, so that the reader has to walk all of it.
    writer.add_name("test model")
    writer.add_block_count(LAYER + 1)
    writer.add_embedding_length(HIDDEN)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "", "\u00e9"])
    writer.add_array("test.numbers", [1, -2, 3])
    writer.add_bool("test.bool", True)
    writer.add_float64("test.double", 0.5)
    writer.add_int8("test.int8", -1)
    writer.add_uint16("split.count", 1)
    return writer


def add_weight(writer, name, seed, rows, columns, experts=EXPERTS) -> None:
    writer.add_tensor(name, weight_bytes(seed, experts, rows, columns), raw_dtype=NVFP4)


def close(writer) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_layer(writer, layer=LAYER, with_scales=True, fused=False) -> None:
    prefix = f"blk.{layer}.ffn_"
    if fused:
        add_weight(writer, prefix + "gate_up_exps.weight", 4, 2 * INTER, HIDDEN)
    else:
        add_weight(writer, prefix + "gate_exps.weight", 1, INTER, HIDDEN)
        add_weight(writer, prefix + "up_exps.weight", 2, INTER, HIDDEN)
    add_weight(writer, prefix + "down_exps.weight", 3, HIDDEN, INTER)
    if with_scales:
        names = ["gate_up_exps", "down_exps"] if fused else ["gate_exps", "up_exps", "down_exps"]
        for seed, name in enumerate(names):
            writer.add_tensor(prefix + name + ".scale", scales(seed))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    writer = open_writer(folder / "separate.gguf")
    writer.add_tensor("token_embd.weight", np.zeros((4, HIDDEN), dtype=np.float16))
    add_layer(writer)
    writer.add_array("qwen3moe.swiglu_clamp_exp", [0.0, 0.0, 0.0, 7.0])
    close(writer)

    writer = open_writer(folder / "plain.gguf", alignment=128)
    add_layer(writer, with_scales=False)
    close(writer)

    writer = open_writer(folder / "fused.gguf")
    add_layer(writer, fused=True)
    close(writer)

    writer = open_writer(folder / "wrong_type.gguf")
    for name, rows, columns in (("gate", INTER, HIDDEN), ("up", INTER, HIDDEN),
                                ("down", HIDDEN, INTER)):
        writer.add_tensor(f"blk.{LAYER}.ffn_{name}_exps.weight",
                          np.zeros((EXPERTS, rows, columns), dtype=np.float16))
    close(writer)

    writer = open_writer(folder / "missing_up.gguf")
    add_weight(writer, f"blk.{LAYER}.ffn_gate_exps.weight", 1, INTER, HIDDEN)
    add_weight(writer, f"blk.{LAYER}.ffn_down_exps.weight", 3, HIDDEN, INTER)
    close(writer)

    writer = open_writer(folder / "wrong_shape.gguf")
    add_weight(writer, f"blk.{LAYER}.ffn_gate_exps.weight", 1, INTER, HIDDEN)
    add_weight(writer, f"blk.{LAYER}.ffn_up_exps.weight", 2, 2 * INTER, HIDDEN)
    add_weight(writer, f"blk.{LAYER}.ffn_down_exps.weight", 3, HIDDEN, INTER)
    close(writer)

    writer = open_writer(folder / "wrong_experts.gguf")
    add_weight(writer, f"blk.{LAYER}.ffn_gate_exps.weight", 1, INTER, HIDDEN, EXPERTS - 1)
    add_weight(writer, f"blk.{LAYER}.ffn_up_exps.weight", 2, INTER, HIDDEN)
    add_weight(writer, f"blk.{LAYER}.ffn_down_exps.weight", 3, HIDDEN, INTER)
    close(writer)

    # All outputs of such a layer are zero.
    writer = open_writer(folder / "zeros.gguf")
    for name, rows, columns in (("gate", INTER, HIDDEN), ("up", INTER, HIDDEN),
                                ("down", HIDDEN, INTER)):
        row_bytes = columns // BLOCK_VALUES * BLOCK_BYTES
        writer.add_tensor(f"blk.{LAYER}.ffn_{name}_exps.weight",
                          np.zeros((EXPERTS, rows, row_bytes), dtype=np.uint8), raw_dtype=NVFP4)
    close(writer)

    # Last: its presence says that all files are there.
    writer = open_writer(folder / "wrong_scales.gguf")
    add_layer(writer, with_scales=False)
    writer.add_tensor(f"blk.{LAYER}.ffn_up_exps.scale", np.ones(EXPERTS + 1, dtype=np.float32))
    close(writer)


if __name__ == "__main__":
    main()
