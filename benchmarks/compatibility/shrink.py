"""Any transformers architecture from its configuration alone, made small by the names of its fields."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS, IMAGE = 16, 2, 2, 48, 64, 32

_NAMES = {
    WIDTH: """hidden_size d_model n_embd embed_dim dim emb_dim embedding_size word_embed_proj_dim
        pooler_hidden_size attention_hidden_size input_embedding_size hidden_dim projection_dim d_embed
        lru_width width d_latents model_dim mm_hidden_size query_pre_attn_scalar conv_dim qk_head_dim""",
    WIDTH // HEADS: """head_dim d_head kv_channels attention_head_size qk_nope_head_dim v_head_dim d_kv
        linear_key_head_dim linear_value_head_dim global_head_dim index_head_dim rotary_dim mamba_d_head
        mamba_head_dim swa_head_dim swa_v_head_dim attention_head_dim qk_rope_head_dim q_lora_rank
        kv_lora_rank linear_head_dim patch_size""",
    2 * WIDTH: """intermediate_size ffn_dim d_ff n_inner d_inner ffn_hidden_size encoder_ffn_dim
        decoder_ffn_dim inner_dim feed_forward_size feedforward_dim moe_intermediate_size image_size
        mamba_d_ssm shared_expert_intermediate_size shared_intermediate_size intermediate_size_mlp
        moe_shared_expert_intermediate_size dense_intermediate_size expert_ffn_hidden_size""",
    POSITIONS: """max_position_embeddings n_positions max_seq_len max_sequence_length
        max_2d_position_embeddings""",
    VOCABULARY: "vocab_size vocab_size_per_layer_input",
    4: """num_experts num_local_experts n_routed_experts moe_num_experts mamba_d_state state_size
        ssm_state_size time_step_rank mamba_dt_rank mamba_n_heads mamba_num_heads num_groups num_latents
        hidden_size_per_layer_input index_topk laurel_rank chunk_size mamba_chunk_size window_size
        attention_window indexer_budget indexer_head_dim""",
    3: "mamba_d_conv",
    2: """num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
        num_key_value_heads n_head_kv num_kv_heads linear_num_key_heads linear_num_value_heads
        index_n_heads num_self_attention_heads num_cross_attention_heads num_key_value_head
        swa_num_attention_heads swa_num_key_value_heads num_hidden_layers n_layer n_layers num_layers
        encoder_layers decoder_layers num_decoder_layers num_encoder_layers num_blocks
        num_self_attends_per_block num_experts_per_tok moe_topk moe_k n_mamba_heads
        mamba_expand expand eos_token_id num_experts_per_token
        linear_num_heads indexer_n_heads indexer_kv_heads indexer_compress_ratio""",
    1: """num_shared_experts n_group topk_group first_k_dense_replace mamba_n_groups n_groups
        num_expert_group num_layers_per_stack bos_token_id num_codebooks""",
    0: "num_nextn_predict_layers num_kv_shared_layers pad_token_id",
}
SIZES: dict[str, Any] = {name: size for size, names in _NAMES.items() for name in names.split()} | {
    "axial_pos_shape": [8, 8],
    "axial_pos_embds_dim": [4, 12],
}
"""What a field of that name becomes."""
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
WIDTHS = ("hidden_sizes", "embed_dims", "encoder_hidden_sizes", "decoder_hidden_sizes", "neck_hidden_sizes")
MULTIPLIERS = ("width_multiplier", "width_coefficient", "depth_multiplier", "depth_coefficient")
MULTIPLIED = 0.25
"""By what the multipliers of fixed widths are multiplied."""
MOST_PARAMETERS = 2_500_000


def small(configuration: Any, layers: int = LAYERS) -> Any:
    """Shrink a configuration and those inside it, in place, and return it."""
    lengths = {getattr(configuration, name, None) for name in COUNTS} - {None}
    for name, value in list(vars(configuration).items()):
        if is_configuration(value):
            small(value, layers)
        elif name in COUNTS and isinstance(value, int):
            setattr(configuration, name, layers)
        elif name.endswith("_token_id") or (name in SIZES and _counts(value, SIZES[name])):
            setattr(configuration, name, SIZES.get(name, 1))
        elif isinstance(value, list) and len(value) in lengths and len(value) > layers:
            setattr(configuration, name, of_each_kind(value, layers))
        elif name in WIDTHS and isinstance(value, list | tuple):
            setattr(configuration, name, [WIDTH] * len(value))
        elif name == "image_size" and isinstance(value, list | tuple):
            setattr(configuration, name, [IMAGE] * len(value))
        elif name == "depths" and isinstance(value, list | tuple):
            setattr(configuration, name, [1] * len(value))
        elif name in MULTIPLIERS and isinstance(value, float):
            setattr(configuration, name, MULTIPLIED * value)
    return plainly(configuration)


def plainly(configuration: Any) -> Any:
    """Ask for products that a loop over experts and heads makes, and return the configuration.

    What only checkpoints say gets a value, too: where a decoder begins.
    """
    configuration._attn_implementation = "eager"
    configuration._experts_implementation = "eager"
    configuration.use_cache = False
    if not hasattr(configuration, "decoder_start_token_id"):
        configuration.decoder_start_token_id = 0
    return configuration


def is_configuration(value: Any) -> bool:
    """Return whether a field holds the configuration of a part."""
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def _counts(value: Any, becomes: Any) -> bool:
    return type(value) is type(becomes) or (isinstance(value, int) and isinstance(becomes, int))


def of_each_kind(values: Sequence[Any], length: int) -> list[Any]:
    """Return one entry a layer, of as many kinds as there are layers, in turn."""
    kinds = list(dict.fromkeys(map(str, values)))
    first = [next(v for v in values if str(v) == kind) for kind in kinds]
    return list(itertools.islice(itertools.cycle(first), length))


def by_name(kind: type) -> Iterator[Any]:
    """Yield small configurations of a kind, the smallest first: what one model refuses another needs."""
    for patch in PATCHES:
        try:
            configuration = small(kind(), patch.get("num_hidden_layers", LAYERS))
            for name, value in patch.items():
                if hasattr(configuration, name):
                    setattr(configuration, name, value)
        except Exception:  # a field that a configuration checks: the next patch may suit it
            continue
        yield configuration


PATCHES: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 1},
    {"hidden_size": 32, "head_dim": 16},
    {"num_hidden_layers": 4},
    {"image_size": 64, "patch_size": 16},
    {"image_size": 64},
    {"num_self_attention_heads": 1, "num_cross_attention_heads": 1},
    {"is_decoder": True},
)
