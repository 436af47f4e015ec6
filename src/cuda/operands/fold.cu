// cuda/operands/fold.cu: launches of the folding kernel.
#include "cuda/operands/fold.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "cuda/runtime/even_bytes.h"
#include "cuda/operands/folded_rows.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/operands/fold.cuh"
#include "mxkern/kernels/operands/fold_both.cuh"
#include "mxkern/kernels/operands/fold_rows.cuh"

namespace mxkern::cuda {
namespace {

// Whether a warp can take whole rows of 8-bit codes, four scales at a time.
bool has_whole_rows(const kernels::FoldParameters& p) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;
  constexpr std::int64_t most_columns = std::int64_t{1} << 28;  // 2^31 bytes of swizzled scales
  return p.batch == 1 && p.columns % 128 == 0 && p.is_whole && p.scales_in_words &&
         p.rows < most_rows && p.columns < most_columns;
}

template <class S, kernels::FoundSpreads Found>
void launch_fold_rows(const char* function, kernels::FoldRowsParameters& p, Stream stream) {
  constexpr int most_warps = 32;  // of a multiprocessor
  const int processors = processor_count(function);
  const std::int64_t rows = p.rows, warps = std::int64_t{most_warps} * processors;
  if (rows > warps) {
    constexpr int few = 4;
    launch<Start::early>(function, kernels::fold_rows_kernel<S, few, 1, Found>,
                         grid_of(ceil_div(rows, few)), 32 * few, 0, stream, p);
    return;
  }
  const auto chunks = ceil_div(p.folded_columns, kernels::fold_rows_chunk);
  while (rows << (p.log2_warps + 1) <= warps && 1 << (p.log2_warps + 1) <= most_warps &&
         1 << p.log2_warps < chunks) {
    ++p.log2_warps;
  }
  constexpr int log2_shares = 2;
  const bool is_shared = p.columns <= kernels::fold_rows_chunk && rows << log2_shares <= warps;
  if (is_shared) p.log2_warps = log2_shares;
  launch<Start::early>(function,
                       is_shared ? kernels::fold_rows_kernel<S, most_warps, 1 << log2_shares, Found>
                                 : kernels::fold_rows_kernel<S, most_warps, 1, Found>,
                       grid_of(std::min<std::int64_t>(rows, processors)), 32 * most_warps, 0,
                       stream, p);
}

template <class S>
void fold_rows(const char* function, const kernels::FoldParameters& all, std::int64_t others,
               std::int64_t folded_columns, bool finds_spreads, Stream stream) {
  kernels::FoldRowsParameters p = {};
  p.codes = all.codes;
  p.rows = static_cast<int>(all.rows);
  p.columns = static_cast<int>(all.columns);
  p.folded_columns = static_cast<int>(folded_columns);
  p.others = static_cast<int>(others);
  p.scales = {all.scales, p.columns, word_step(all.scale_index)};
  p.out = all.out;
  p.follows = all.follows;
  std::copy(std::begin(all.counters), std::end(all.counters), p.counters);
  using Found = kernels::FoundSpreads;
  if constexpr (std::is_same_v<typename S::Format, E4M3>) {
    if (others > 0) return launch_fold_rows<S, Found::of_all>(function, p, stream);
  }
  check(others == 0, function, ": expected E4M3 where some rows are folded later");
  finds_spreads ? launch_fold_rows<S, Found::of_folded>(function, p, stream)
                : launch_fold_rows<S, Found::none>(function, p, stream);
}

kernels::FoldParameters fold_parameters(const char* function, const FoldTask& task) {
  const BlockScaled& q = *task.operand;
  check_device_pointer(function, "codes", q.codes, q.device);
  check_device_pointer(function, "scales", q.scales, q.device);
  kernels::FoldParameters p = {};
  p.batch = q.shape.batch;
  p.rows = task.first.rows > 0 ? task.first.rows : q.shape.rows;
  p.columns = q.shape.columns;
  p.codes = q.codes;
  p.code_row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  p.scales = q.scales;
  p.scale_index = q.scale_index();
  p.out = folded_rows(q.shape, task.memory);
  p.scales_in_words = scales_in_words(alignment_of(p.scales, 4), p.scale_index);
  p.counters[1] = zeroed_counters(task.first, q.shape);
  visit(q.scheme, [&]<class S>(S) {
    if constexpr (scheme_can_fold<S>) {
      using Unit = kernels::FoldUnit<typename S::Format>;
      p.log2_team = kernels::log2_team(ceil_div(p.columns, Unit::codes));
      p.is_whole =
          p.columns % Unit::codes == 0 && rows_start_on(p.codes, p.code_row_bytes, Unit::alignment);
    }
  });
  return p;
}

// Whether one kernel folds both operands, if rows are whole: 8-bit codes of the same scheme. It
// counts parts of rows, each of at least 128 columns, in 32 bits.
bool are_for_one_kernel(const FoldTask& a, const FoldTask& b) {
  constexpr std::int64_t most_codes = std::int64_t{1} << 37;
  const auto is_part = [](const FirstRows& first) {
    return first.columns > 0 || (first.rows > 0 && first.are_gated);
  };
  return a.operand->scheme == b.operand->scheme && facts_of(a.operand->scheme).bits == 8 &&
         fold_facts(a.operand->scheme).can_fold &&
         a.operand->shape.columns == b.operand->shape.columns && !is_part(a.first) &&
         !is_part(b.first) && a.operand->shape.size() + b.operand->shape.size() < most_codes;
}

kernels::FoldBothParameters::Side side_of(const kernels::FoldParameters& p) {
  return {p.codes,
          {p.scales, static_cast<int>(p.columns), word_step(p.scale_index)},
          p.out,
          static_cast<int>(p.rows)};
}

// A Shares-th of a chunk a warp: where rows are longer each of more warps would look for the
// largest of more scales.
template <class S, int Shares>
void launch_fold_both(const char* function, kernels::FoldBothParameters& p, bool finds_spreads,
                      Stream stream) {
  constexpr int columns = kernels::fold_rows_chunk / Shares;
  p.parts = static_cast<int>(ceil_div(std::int64_t{p.columns}, columns));
  const std::int64_t parts = (std::int64_t{p.sides[0].rows} + p.sides[1].rows) * p.parts;
  launch<Start::early>(function,
                       finds_spreads ? kernels::fold_both_kernel<S, Shares, true>
                                     : kernels::fold_both_kernel<S, Shares, false>,
                       grid_of(ceil_div(parts, kernels::fold_both_warps)),
                       kernels::fold_both_threads, 0, stream, p);
}

}  // namespace

bool fold_both(const char* function, const FoldTask& a, const FoldTask& b, Stream stream,
               const ZeroedWords& zeroed, bool finds_spreads) {
  if (!are_for_one_kernel(a, b)) return false;
  const DeviceScope scope(a.operand->device, function);
  const kernels::FoldParameters left = fold_parameters(function, a);
  const kernels::FoldParameters right = fold_parameters(function, b);
  if (!has_whole_rows(left) || !has_whole_rows(right)) return false;
  kernels::FoldBothParameters p = {};
  p.columns = static_cast<int>(left.columns);
  p.sides[0] = side_of(left);
  p.sides[1] = side_of(right);
  p.counters[0] = {zeroed.data, zeroed.count};
  p.counters[1] = left.counters[1];
  p.counters[2] = right.counters[1];
  visit(a.operand->scheme, [&]<class S>(S) {
    if constexpr (scheme_can_fold<S> && S::Format::bits == 8) {
      constexpr int more = 4, fewer = 2;
      p.columns <= kernels::fold_rows_chunk
          ? launch_fold_both<S, more>(function, p, finds_spreads, stream)
          : launch_fold_both<S, fewer>(function, p, finds_spreads, stream);
    }
  });
  return true;
}

void fold(const char* function, const BlockScaled& q, void* memory, Stream stream,
          kernels::Follows follows, const ZeroedWords& zeroed, const FirstRows& first,
          bool finds_spreads) {
  const DeviceScope scope(q.device, function);
  kernels::FoldParameters p = fold_parameters(function, {&q, memory, first});
  const std::int64_t others = first.are_gated ? q.shape.rows - p.rows : 0;
  const std::int64_t folded_columns = first.columns > 0 ? first.columns : p.columns;
  check(folded_columns <= p.columns && !(folded_columns < p.columns && first.are_gated), function,
        ": ", folded_columns, " columns of ", p.columns,
        " are folded; expected no more than there are, and all where spreads are asked about");
  p.follows = follows;
  p.counters[0] = {zeroed.data, zeroed.count};
  visit(q.scheme, [&]<class S>(S) {
    if constexpr (scheme_can_fold<S>) {
      if constexpr (S::Format::bits == 8) {
        if (has_whole_rows(p))
          return fold_rows<S>(function, p, others, folded_columns, finds_spreads, stream);
      }
      check(others == 0 && folded_columns == p.columns, function,
            ": expected whole rows of E4M3 where some are folded later");
      const int rows = kernels::team_threads >> p.log2_team;
      const dim3 grid = grid_of(ceil_div(p.batch * p.rows, rows));
      launch<Start::early>(function, kernels::fold_kernel<S>, grid, kernels::team_threads,
                           spread_bytes(function, grid.x, kernels::fold_blocks<S>, 0), stream, p);
    } else {
      check(false, function, ": ", S::name,
            " cannot be folded: its elements do not fit into 8-bit floats; use precision exact");
    }
  });
}

}  // namespace mxkern::cuda
