// tuning/h200.h: figures measured on an NVIDIA H200, by which plans and launches choose. Whoever
// has another GPU writes a file like this one for it.
//
// They are in microseconds and in clocks at 1.98 GHz. Nothing but time depends on them: results are
// the same bytes whatever they are, with one exception. How a product is divided along K, by
// `tiles` and `divided`, decides the order in which its float32 sums are added.
#pragma once

#include <cstdint>

namespace mxkern::tuning::h200 {

// What schemes add to MXFP4, in microseconds.
struct OfScheme {
  double nvfp4, six_bits, eight_bits;
};

// Products of few tokens, as plan/decode/cost_model.cc adds these up: a thread block takes an end
// and turns of 128 columns for each part of K; memory has to bring the weights. Fitted to measured
// times of plans, and so redone by `python -m bench.tuning.few_tokens`: to 80003 plans of 2103
// products, of 30 shapes of weights in four schemes with 8 to 1024 tokens; those of gemm_decode
// then to 1254 of 206, those of Hopper's kernel to 16429 of 555, of pairs of thread blocks to 765
// of 145 and, for 32 tokens, to 165 of 80: first to the times of plans not far from the best, then
// such that what is chosen is fast.
namespace few {

inline constexpr double several_groups = 0.2438;  // of tokens, for the same weights, in gemm_decode

// gemm_decode, where a multiprocessor has room for two thread blocks. `lone_...`: it has one.
struct Pairs {
  double start, turn, nvfp4, shared, two_tiles, idle_warps, kilobyte, end, end_of_rank, lone_turn,
      lone_end, lone_end_of_rank, end_of_two, end_of_part, half, memory_byte, memory;
};
inline constexpr Pairs pairs_of_8 = {-1.503,  0.7092,  0.0,     0.1653,    0.7833, 0.677,
                                     0.01261, 2.936,   1.287,   0.6294,    3.164,  0.5897,
                                     0.4419,  -0.1406, -0.3354, 0.2029e-6, 2.109};
inline constexpr Pairs pairs_of_16 = {0.00226,   1.191,   0.05233, 0.08773,   0.6842, 0.8647,
                                      0.0008384, 2.026,   0.9722,  0.6379,    1.655,  0.5991,
                                      0.5569,    -0.1193, -0.3729, 0.1508e-6, 2.407};

// gemm_decode, where a multiprocessor has room for one: of 8 or 16 tokens, and of more.
struct Alone {
  double start, end, end_of_token, end_of_rank, end_of_part, half, memory_byte, memory;
};
inline constexpr Alone alone_of_few = {-0.3977, 1.335,  0.04564,   0.93,
                                       0.01146, 0.8856, 0.2099e-6, 1.717};
inline constexpr Alone alone_of_more = {-0.6269, 4.1767, 0.0154,    0.3253,
                                        0.2122,  0.8064, 0.2277e-6, 2.9769};
// A turn of a warp, and what a tile adds to its scheduler's.
struct AloneTurn {
  double warp, tile;
};
inline constexpr AloneTurn turn_of_8 = {0.3837, 0.2736}, turn_of_16 = {0.4036, 0.2948},
                           turn_of_32 = {1.1258, 0.2818}, turn_of_64 = {1.456, 0.362};
inline constexpr OfScheme tile_of_few = {0.0, 0.03451, 0.06627},
                          tile_of_more = {0.0418, 0.0871, 0.038};
inline constexpr double kilobyte_of_few = 0.009572, kilobyte_of_more = 0.0156;
// A warp of few tokens waits longer for those that it shares, and less for words of 8 bits, each of
// which has fewer codes. With 16 parts it is done sooner.
inline constexpr double shared_wait = 0.4349, less_wait_of_wide = 0.1915,
                        less_end_of_16_parts = 0.2267;

// Hopper's kernel with two warpgroups, beside which a second thread block has room: alone on a
// multiprocessor, and in a pair.
struct PairsSm90 {
  double turn_32, turn_64, turn_96, divided, two_stages, end, end_of_rank;
  OfScheme schemes;
};
inline constexpr PairsSm90 lone_sm90 = {0.3710, 0.4680, 0.5488, 0.0229,
                                        0.12,   0.8763, 0.7159, {0.0241, 0.13, 0.0609}};
inline constexpr PairsSm90 pair_sm90 = {0.7150, 0.9700, 1.2000, 0.0216,
                                        0.12,   1.0718, 0.7083, {0.0625, 0.24, 0.0915}};
inline constexpr double pair_end_of_token = 0.0230, pair_end_of_part = 0.0895,
                        pair_half_empty = 0.6, pair_several_groups = 0.2,
                        pair_memory_byte = 0.2103e-6, pair_memory = 2.3041;

// Hopper's kernel otherwise: a turn with K in one part, two and four, with four warpgroups and with
// two.
struct TurnSm90 {
  double whole, halves, quarters;
};
inline constexpr TurnSm90 four_of_32 = {0.695, 0.708, 0.793}, four_of_64 = {0.905, 0.918, 1.065},
                          four_of_96 = {1.098, 1.104, 1.3}, four_of_128 = {1.358, 1.375, 1.6};
inline constexpr TurnSm90 two_of_96 = {0.563, 0.610, 0.0}, two_of_128 = {0.691, 0.726, 0.0},
                          two_of_192 = {0.986, 1.028, 0.0}, two_of_256 = {1.410, 1.5, 0.0};
inline constexpr OfScheme turn_of_four_sm90 = {0.039, 0.228, 0.107},
                          turn_of_two_sm90 = {0.020, 0.126, 0.058};
// Two warpgroups decode half as much in a turn, and the more tokens there are, the more of it is
// hidden: what float16 adds to their turn, as a share of what it adds to four's.
inline constexpr double two_up_to_128 = 0.5, two_up_to_192 = 0.4, two_of_more = 0.1;
inline constexpr double idle_kilobyte =
    0.0033;  // with fewer thread blocks the cache has more of it
struct EndSm90 {
  double once, token, part, ranks, token_of_ranks, more_ranks;
};
inline constexpr EndSm90 end_sm90 = {3.088, 0.0039, 0.241, 0.746, 0.0019, 0.899};
inline constexpr double left_sm90 = 0.421;  // a last round that is not full is sooner done
inline constexpr double half_sm90 = 0.790, memory_byte_sm90 = 0.1972e-6, memory_sm90 = 2.107;

// float16 tokens add to a turn of either of Hopper's kernels this, and what weights of a scheme
// add.
inline constexpr double halves_sm90 = 0.1;
inline constexpr OfScheme of_halves_sm90 = {-0.04, 0.1, 0.1};

// The most tokens of which the weights are decoded as they are multiplied, in all kernels; where
// Hopper's warpgroups multiply, beyond which it takes less to expand the weights in the call, 50 us
// for 8192 x 8192; and with quantized operands that could be folded as well, beyond which that
// takes less.
inline constexpr std::int64_t most_tokens = 256, most_tokens_sm90 = 2048, most_quantized = 384;
// Weights of 32 million elements: larger ones take longer by thread blocks of 16 tokens.
inline constexpr std::uint32_t small_tiles = 1 << 13;

// Rows of a thread block where groups have so many on average: see
// docs/notebook/2026-11-30-experts-in-turn.md.
inline constexpr std::int64_t rows_for_8 = 4, rows_for_16 = 12, rows_for_32 = 24, rows_for_64 = 96;
// A warp's turn and the end of its tile, up to 16 rows; and a byte of weights.
inline constexpr double group_turn = 0.65, group_end = 1.0, group_byte = 0.23e-6;

// Folded rows: the end of a thread block in turns of a tile, and what a cluster's twice as many
// thread blocks add.
inline constexpr double folded_end = 8.0, folded_rank = 2.0;

}  // namespace few

// Tiles of products on Hopper: clocks of a step of 128 bytes along K, of the end of a tile, and by
// how many tenths of a percent a product takes longer, as smaller tiles bring more bytes from the
// second-level cache for an element of the output and power limits the chip. With 64 columns a step
// waits for what it loads. From products of one tile a multiprocessor with growing K.
namespace tiles {

struct Clocks {
  std::int64_t step, end, longer;
};
inline constexpr Clocks of_64 = {390, 1200, 120}, of_128 = {520, 2000, 45},
                        of_192 = {785, 3050, 15}, of_256 = {1035, 4100, 0};
// bfloat16, by 64 columns: percent of what the tensor cores take for an element.
inline constexpr int bfloat16_percents[] = {190, 119, 110, 106};
// Blocks share loads where their number is even, or where one more, which has nothing to do, costs
// less than that saves: from so many on. Products whose blocks do not share loads take 8 % longer.
inline constexpr std::int64_t fewest_odd = 13;
inline constexpr std::int64_t lone_percent = 108;
// Rows that only the large tile can fold late save 1 to 5 %.
inline constexpr std::int64_t late_rows_permille = 990;
// One kernel for the folded and the exact product: kernels that have nothing to do take 2.5 to
// 11 us, and a folded product in the largest tile up to 2 % longer beside the exact one, while the
// chip is cool. Products of more steps, one after the other on a multiprocessor, are better off
// with two.
inline constexpr std::int64_t most_steps_in_one_kernel = 512;
// Groups of columns end anywhere, and tiles with fewer columns have more ends: they take up to a
// tenth longer than clocks say.
inline constexpr std::int64_t ends_tenths = 9;
// Where groups have few rows tiles are half as high, and where they have many, warpgroups without
// rows multiply all the same: most tiles have all rows, and clusters of others, sooner done, would
// no longer share in the cache what they read.
inline constexpr std::int64_t decode_group_rows = 32, many_group_rows = 256;

}  // namespace tiles

// The last tiles of a product, divided along K where that pays.
namespace divided {

// Clocks that it takes to leave and to add the sums of tiles of 96 KB: so many a part, or `several`
// where stretches end inside tiles, and `many` a part where there are many, as one after the other
// is added.
inline constexpr std::int64_t join_part = 2000, join_several = 12000, join_many = 1000;
// A kernel that sets counters to zeros takes so long, where no other one is there to do it.
inline constexpr std::int64_t least_gained = 4500;
// What is gained of what the tensor cores save: where multiprocessors idle the others run faster,
// as power limits the chip.
inline constexpr std::int64_t gained_tenths = 7;
inline constexpr int most_parts = 6;
// Turns that are fuller than this took longer divided among all clusters, whatever clocks say.
inline constexpr int most_shared_fifths = 3;

}  // namespace divided

// Rows that a product on Hopper makes ready itself, while it is under way. From products with and
// without late rows, tile by tile.
namespace late {

// Tiles come in bands of clusters that lie one below the other. 66 clusters of two compute 11 x 6
// tiles at once: 8-bit elements take 0.7 % less time so, bfloat16 ones do not care. Late rows of an
// operand should be needed by few of the first tiles.
inline constexpr int band = 11, band_of_left = 4, band_of_right = 16;
// Clusters that begin with rows behind the first tiles' wait. Up to an eighth of them may, of
// operands with up to so many rows: many turns need rows about as fast as they are made.
inline constexpr std::int64_t most_rows_that_wait = 8192;
// The fewest rows of either operand, and turns of tiles, with which there is time to make others.
inline constexpr std::int64_t least_left = 2048, least_right = 4096, least_turns = 3;
inline constexpr std::int64_t least_turns_beside_decoded = 2;

// Folded left rows: of two turns, and of right operands with so many rows. Lower bands of tiles
// cost as much as late rows save where few are late, 2048 x 6144 x 4096, or where folding is a
// small part, 8192 x 14336 x 4096.
inline constexpr std::int64_t least_folded_turns = 2, most_right = 10240, long_row = 8192;
// Folded right rows. While tiles of one turn are computed so many are made. Where turns need nearly
// as many and are short, a second tile ahead saves 2 % of a product on a device that has rested.
inline constexpr std::int64_t least_left_of_right = 1024, made_in_turn = 2304, many_in_turn = 2048;

// The columns of the first of folded left rows, where the product makes these as well: 2048 x 4096
// x 14336 takes 0.7 to 1 % less with a third ahead.
inline constexpr std::int64_t long_first_row = 10240, first_part = 3;
// Rows of which each takes less are made ahead: of all products, and behind a gate, where the
// spreads of late rows are found ahead, which takes as long as late rows save. 1627 us for 16384 x
// 4096 x 14336 with all rows ahead and 1583 with late ones, but 241 and 243 for 8192 x 4096 x 4096,
// and 906 and 906 for 8192 x 8192 x 8192.
inline constexpr std::int64_t least_columns = 4096, least_gated_columns = 10240;

}  // namespace late

// Exact products that decode codes of an operand, instead of expanding it first. A turn of tiles
// takes 1 to 3 us more, and what is saved is expanding, less what late rows hide of it, and the
// wait for a kernel ahead.
namespace decoded {

// Turns up to which the left operand's codes are decoded: with late right rows, which warps that
// decode make as well, if those are used by many left ones; and without.
inline constexpr std::int64_t most_turns = 8, most_turns_alone = 4, least_rows = 3072;
// To decode takes 6.5 % of the time of the tiles, and to expand rows a clock for so many bytes, of
// which late rows hide half.
inline constexpr std::int64_t tiles_permille = 1065, expanded_bytes_per_clock = 1900;

}  // namespace decoded

// Quantizers: which of several kernels takes a tensor, by how much there is of it. From tensors of
// 4096 columns and growing rows.
namespace quantize {

// Along columns, and both ways: so many whole tiles, of schemes of 8 bits at most as many for each
// multiprocessor, pay for a kernel of their own beside patches.
inline constexpr std::int64_t most_whole_per_processor = 3, least_whole = 768;
// Whole tiles are quantized apart from those that are cut off, from so many on.
inline constexpr std::int64_t least_apart = 256, least_apart_of_nvfp4 = 640, least_apart_both = 640,
                              least_apart_both_of_nvfp4 = 4096;
// Along rows every octet gets a thread below 1 MB of 16-bit elements; 1.25 MB of NVFP4, whose other
// kernels begin with a table; 4 MB where there are ragged tiles.
inline constexpr std::int64_t small_threads = 1 << 16, small_threads_of_nvfp4 = 5 << 14,
                              small_threads_ragged = 1 << 18;
// Thread blocks that the device holds are given one group of rows each instead of staying, where
// there are so many for each: those that stay drift apart.
inline constexpr std::int64_t once_rounds = 6;
// Groups of rows of a thread block, one after the other. [0]: of 8 bits.
inline constexpr int log2_series[] = {1, 2};
// NVFP4's both directions take as long for a tile as for so many stores of its row-major scales:
// 121 us with swizzled scales, 152 with 256 stores a tile.
inline constexpr std::int64_t stores_of_a_tile = 1000;
// Up to 8 MB, in chunks, thread blocks that look for an amax start before the tensor is complete.
inline constexpr std::int64_t few_amax_chunks = 512;

}  // namespace quantize

}  // namespace mxkern::tuning::h200
