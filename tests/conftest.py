"""What holds for every test: one thread each, as many workers as cores, where the shared data is, and how much of a
large grid every run walks.
"""

import os
from pathlib import Path
from zlib import crc32

import pytest

# Before anything imports torch. Workers already fill the cores, and a fixed number of threads keeps sums bit for bit.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TRANSPECT_LANG"] = "en"

from transpect.base.devices import allowed_cores

ROOT = Path(__file__).resolve().parents[1]

ONE_IN = {
    "cache/test_cache_grid.py::test_forks_go_their_own_ways": 2,
    "cache/test_cache_memory.py::test_a_memory_as_long_as_the_past_is_one_pass": 3,
    "cache/test_cache_memory.py::test_a_short_memory_is_one_pass_under_a_rule_in_every_layer": 2,
    "cache/test_cache_sums.py::test_decoding_is_the_same_with_either_cache_and_alone": 2,
    "cli/test_cli_main.py::test_a_reader_that_leaves_early_gets_no_traceback": 2,
    "cli/test_cli_model.py::test_shapes_follow_from_the_axes": 3,
    "compare/test_compare_measure.py::test_over_all_tokens_and_over_the_last_part": 2,
    "compare/test_compare_parameters.py::test_the_nearest_width_is_found": 3,
    "core/test_core_grid.py::test_cached_ragged_rows_equal_single": 2,
    "core/test_core_grid.py::test_gradient_to_the_future_is_exactly_zero": 3,
    "core/test_core_grid.py::test_properties": 12,
    "core/test_core_spans.py::test_what_composed_rules_say_of_blocks_is_so": 2,
    "core/test_core_spans.py::test_what_rules_say_of_blocks_is_so": 3,
    "core/test_kernels.py::test_batches_without_rows_and_rows_without_tokens": 2,
    "core/test_kernels.py::test_capped_scores": 3,
    "core/test_kernels.py::test_kernels_equal_naive": 12,
    "core/test_kernels.py::test_no_tensor_grows_with_the_square_of_the_length": 3,
    "core/test_kernels.py::test_sums_over_tiles_are_not_in_half_precision": 4,
    "core/test_kernels.py::test_under_autocast": 2,
    "core/test_kernels.py::test_what_is_hidden_costs_nothing": 3,
    "core/test_kernels_flex.py::test_every_rule_in_every_state_is_the_definition": 4,
    "core/test_kernels_flex.py::test_the_lists_of_blocks_are_those_of_torch": 3,
    "data/test_data_loader.py::test_stopped_anywhere_it_goes_on_the_same": 4,
    "data/test_data_masked.py::test_each_word_is_chosen_as_often_as_stated": 2,
    "decode/test_decode_beam_parity.py::test_beams_are_theirs": 2,
    "decode/test_decode_cancelling.py::test_a_cancelled_request_has_no_more_events_and_the_others_theirs": 2,
    "decode/test_decode_constraints.py::test_exactly_the_tokens_with_a_completion_are_allowed": 2,
    "decode/test_decode_generate.py::test_batched_and_cached_equals_spelled_out": 4,
    "decode/test_decode_memory.py::test_a_memory_as_long_as_the_past_changes_nothing": 4,
    "decode/test_decode_needles.py::test_a_needle_is_the_same_by_every_strategy": 2,
    "decode/test_decode_program.py::test_a_program_writes_what_the_model_writes": 12,
    "decode/test_decode_program.py::test_whatever_the_cache": 2,
    "decode/test_decode_searches_anew.py::test_beams_of_every_model": 2,
    "decode/test_decode_spare.py::test_every_bit_is_as_without": 4,
    "decode/test_decode_speculative.py::test_greedy_tokens_are_those_without_drafts": 4,
    "decode/test_decode_stepper.py::test_rows_read_and_forget_as_if_alone": 2,
    "interop/test_interop_any_value.py::test_a_value_of_any_kind_is_read_or_refused": 3,
    "interop/test_interop_checkpoint.py::test_a_near_miss_is_saved_as_what_it_is": 2,
    "interop/test_interop_compressed.py::test_formats_come_back_and_compute_the_same": 2,
    "interop/test_interop_convert.py::test_a_writer_that_dies_leaves_nothing_or_what_was_there": 2,
    "interop/test_interop_families.py::test_a_misshaped_tensor_is_named": 8,
    "interop/test_interop_families.py::test_a_missing_tensor_is_named": 8,
    "interop/test_interop_families.py::test_a_second_name_may_repeat_numbers_and_not_differ": 3,
    "interop/test_interop_families.py::test_an_unexpected_tensor_is_named": 3,
    "interop/test_interop_families.py::test_files_of_pickled_and_safe_weights_mean_the_same": 3,
    "interop/test_interop_published_decoders.py::test_whatever_an_option_holds_is_read_or_refused": 2,
    "parity/test_parity_compressed_tensors.py::test_they_give_our_logits": 2,
    "parity/test_parity_families.py::test_gradients": 4,
    "parity/test_parity_families.py::test_greedy_generation": 10,
    "parity/test_parity_families.py::test_kernels_that_skip_what_is_hidden": 10,
    "parity/test_parity_families.py::test_logits_and_hidden_states": 7,
    "parity/test_parity_families.py::test_there_and_back": 6,
    "runtime/test_runtime_formats.py::test_a_program_over_a_format": 12,
    "runtime/test_runtime_many.py::test_every_scheme_of_positions": 3,
    "runtime/test_runtime_many.py::test_no_pass_and_no_neighbour_changes_a_bit": 2,
    "runtime/test_runtime_products_blocks.py::test_other_lines": 2,
    "runtime/test_runtime_products_blocks.py::test_products": 2,
    "runtime/test_runtime_products_panels.py::test_blocks": 8,
    "runtime/test_runtime_steps.py::test_a_row_depends_on_no_other": 3,
    "text/test_text_gguf.py::test_every_pre_tokenizer_is_named_and_found_again": 2,
    "text/test_text_streaming.py::test_any_ids_stream_to_the_full_decode": 2,
    "train/test_train_attending.py::test_every_shape": 12,
    "train/test_train_loss.py::test_micro_batches_give_the_gradient_of_one_batch": 3,
    "train/test_train_memory.py::test_twenty_steps_are_k_steps_and_the_rest": 2,
    "train/test_train_memory.py::test_with_a_memory_as_long_as_the_past_it_is_one_pass": 2,
    "train/test_train_redraw.py::test_a_run_that_stops_goes_on_with_the_same_draws": 2,
    "train/test_train_resume.py::test_n_steps_are_k_steps_and_the_rest": 6,
    "train/test_train_schedules.py::test_the_nth_update_is_made_at_f_of_n_for_any_accumulation_and_resume": 4,
    "verify/test_verify_rows.py::test_a_planted_fault_fails_the_rows_that_meet_it_and_no_others": 2,
    "verify/test_verify_rows.py::test_a_sound_model_passes_every_row": 10,
    "verify/test_verify_rows.py::test_every_dtype_has_its_own_tolerance": 2,
}
"""Grids of which about one case in so many runs with `make test`, spread by a hash of its name so that every value of
every axis is met; all the others are slow. `pytest -m "" NODE` runs them all."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto``: the cores that a quota leaves us, not those of the machine; each worker holds torch in memory."""
    return min(allowed_cores(), 8)


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `ONE_IN` leaves to the slow tests."""
    for item in items:
        grid, _, case = item.nodeid.removeprefix("tests/").partition("[")
        if crc32(case.encode()) % ONE_IN.get(grid, 1):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data that tests borrow and the repository does not hold: ``$TRANSPECT_SHARED``, or ``../shared``."""
    folder = Path(os.environ.get("TRANSPECT_SHARED") or ROOT.parent / "shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"no shared data in {folder}; set TRANSPECT_SHARED to a folder that has data/")
    return folder
