// cpu/gemm/gemm.cc: the loops of the matrix product around a unit's kernels.
#include "cpu/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <thread>

#include "cpu/gemm/exact_sum.h"
#include "cpu/gemm/panels/panels.h"
#include "cpu/runtime/parallel.h"
#include "mxkern/core/math.h"

namespace mxkern::cpu {
namespace {

// Working memory is handed out by the block: a thread takes whichever slot is free.
class Slots {
 public:
  Slots(const CpuGemmPlan& plan, std::int64_t k, void* workspace)
      : plan_(plan),
        taken_(static_cast<std::atomic<bool>*>(workspace)),
        memory_(static_cast<std::uint8_t*>(workspace) + round_up(plan.slots, 64)) {
    static_assert(sizeof(std::atomic<bool>) == 1, "the plan counts a byte a slot");
    const std::size_t state = slot_layout(plan, k).state;
    for (int i = 0; i < plan.slots; ++i) {
      new (taken_ + i) std::atomic<bool>(false);
      new (memory(i) + state) std::int64_t{-1};
    }
  }

  int take() {
    for (;;) {
      for (int i = 0; i < plan_.slots; ++i) {
        if (!taken_[i].exchange(true, std::memory_order_acquire)) return i;
      }
      std::this_thread::yield();
    }
  }

  void give_back(int slot) { taken_[slot].store(false, std::memory_order_release); }

  std::uint8_t* memory(int slot) const {
    return memory_ + plan_.slot_bytes * static_cast<std::size_t>(slot);
  }

 private:
  const CpuGemmPlan& plan_;
  std::atomic<bool>* taken_;
  std::uint8_t* memory_;
};

// One block of the output, computed by one thread.
class Block {
 public:
  Block(const GemmTask& task, const CpuGemmPlan& plan, std::uint8_t* memory)
      : task_(task),
        plan_(plan),
        facts_(facts_of(plan.unit)),
        kernels_(gemm_kernels(plan.unit)),
        layout_(slot_layout(plan, task.left.k)),
        memory_(memory) {}

  void run(std::int64_t index) {
    select(index);
    load_bias();
    const std::int64_t k = left_.k;
    if (k == 0) return finish_empty();
    const bool has_left = left_is_packed();
    if (!has_left) kernels_.row_shifts(left_, row_, rows_, left_shifts(), left_spreads());
    find_right_shifts();
    least_certain_ = may_lose_at_widest() ? least_certain_sum(left_, right_) : 0.0f;
    knows_wide_spreads_ = false;
    for (std::int64_t begin = 0; begin < k; begin += facts_.depth) {
      const std::int64_t depth = std::min<std::int64_t>(facts_.depth, k - begin);
      const int chunks = static_cast<int>(ceil_div(depth, gemm_chunk));
      left_panel_ = at<std::uint8_t>(layout_.left);
      if (plan_.keeps_left) {
        left_panel_ += begin * row_tiles() * plan_.left_tile * plan_.parts * facts_.element_bytes;
      }
      if (!has_left) {
        kernels_.pack_left(
            left_,
            {row_, row_tiles() * plan_.left_tile, begin, chunks, plan_.left_tile, plan_.parts},
            left_shifts(), left_panel_);
      }
      multiply(begin, chunks, begin + depth == k);
    }
  }

 private:
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  std::int32_t* left_shifts() const { return at<std::int32_t>(layout_.left_shifts); }
  std::int32_t* right_shifts() const { return at<std::int32_t>(layout_.right_shifts); }
  std::int32_t* left_spreads() const { return at<std::int32_t>(layout_.left_spreads); }
  std::int32_t* right_spreads() const { return at<std::int32_t>(layout_.right_spreads); }
  std::int64_t row_tiles() const { return ceil_div(rows_, facts_.tile_rows); }
  std::int64_t column_tiles() const { return ceil_div(columns_, facts_.tile_columns); }

  // Neighbours in the order of blocks share the rows of the right operand, or those of the left one
  // where these are kept.
  void select(std::int64_t index) {
    const std::int64_t blocks = plan_.row_blocks * plan_.column_blocks, own = index % blocks;
    const std::int64_t row_block =
        plan_.keeps_left ? own / plan_.column_blocks : own % plan_.row_blocks;
    const std::int64_t column_block =
        plan_.keeps_left ? own % plan_.column_blocks : own / plan_.row_blocks;
    const std::int64_t batch = index / blocks;
    left_block_ = batch * plan_.row_blocks + row_block;
    left_ = task_.left;
    left_.data += batch * task_.left_batch_bytes;
    left_.scales += batch * task_.left_batch_scales;
    right_ = task_.right;
    if (right_.data != nullptr) right_.data += batch * task_.right_batch_bytes;
    if (right_.scales != nullptr) right_.scales += batch * task_.right_batch_scales;
    if (right_.panels != nullptr) right_.panels += batch * task_.right_batch_panels;
    out_ = task_.out + batch * task_.out_batch_bytes;
    row_ = task_.first_row + row_block * plan_.block_rows;
    column_ = column_block * plan_.block_columns;
    rows_ = std::min(plan_.block_rows, left_.rows - row_);
    columns_ = std::min(plan_.block_columns, right_.rows - column_);
    finish_ = task_.finish;
  }

  // Whether the slot has the rows of this block from the block before; if not, it will have them.
  // Only where they are packed in one piece.
  bool left_is_packed() {
    std::int64_t& packed = *at<std::int64_t>(layout_.state);
    const bool has_them = packed == left_block_;
    packed = plan_.keeps_left || left_.k <= facts_.depth ? left_block_ : -1;
    return has_them;
  }

  void find_right_shifts() {
    if (right_.panels == nullptr) {
      return kernels_.row_shifts(right_, column_, columns_, right_shifts(), right_spreads());
    }
    const PanelLayout layout(right_.scheme, right_.rows, right_.k);
    for (std::int64_t i = 0; i < columns_;) {
      const std::int64_t first = (column_ + i) % PanelLayout::rows;
      const PanelFacts& facts = panel_facts(right_.panels, layout, column_ + i);
      const std::int64_t count = std::min(PanelLayout::rows - first, columns_ - i);
      std::copy_n(facts.shift + first, count, right_shifts() + i);
      std::copy_n(facts.spread + first, count, right_spreads() + i);
      i += count;
    }
  }

  // Whether any output of this block may lose products. Scales of most operands lie so close to
  // each other that bounds say no.
  bool may_lose_at_widest() const {
    return may_lose_products(*std::max_element(left_spreads(), left_spreads() + rows_),
                             *std::max_element(right_spreads(), right_spreads() + columns_));
  }

  // The same when a small sum asks for it: what lies behind bounds is looked up then.
  bool may_lose() {
    if (!knows_wide_spreads_) {
      find_wide_spreads(left_, row_, rows_, left_spreads());
      if (right_.panels == nullptr) {
        find_wide_spreads(right_, column_, columns_, right_spreads());
      }
      knows_wide_spreads_ = true;
      if (!may_lose_at_widest()) least_certain_ = 0.0f;
    }
    return least_certain_ > 0;
  }

  static void find_wide_spreads(const GemmMatrix& matrix, std::int64_t first, std::int64_t count,
                                std::int32_t* spreads) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (may_lose_products(spreads[i], spreads[i])) spreads[i] = row_spread(matrix, first + i);
    }
  }

  // Bias as float32, zeros up to the end of the last tile.
  void load_bias() {
    bias_ = nullptr;
    if (task_.bias == nullptr) return;
    float* bias = at<float>(layout_.bias);
    visit(task_.bias_dtype, [&]<class T>(TypeTag<T>) {
      const T* stored = static_cast<const T*>(task_.bias) + column_;
      for (std::int64_t j = 0; j < columns_; ++j) bias[j] = to_float(stored[j]);
    });
    std::fill(bias + columns_, bias + column_tiles() * facts_.tile_columns, 0.0f);
    bias_ = bias;
  }

  // An empty sum is 0, whatever would have scaled it.
  void finish_empty() {
    std::fill_n(left_shifts(), plan_.block_rows, 0);
    std::fill_n(right_shifts(), plan_.block_columns, 0);
    float* sums = at<float>(layout_.tiles);
    std::fill_n(sums, facts_.tile_rows * facts_.tile_columns, 0.0f);
    finish_.factor = 0.0f;
    finish_.exponent = 0;
    for (std::int64_t j = 0; j < column_tiles(); ++j) {
      for (std::int64_t i = 0; i < row_tiles(); ++i) finish(sums, i, j);
    }
  }

  // One panel along K. A tile of columns is packed and stays in the L1 cache while all tiles of
  // rows go by.
  void multiply(std::int64_t begin, int chunks, bool last) {
    const bool accumulate = begin > 0;
    const std::int64_t left_tile_bytes =
        std::int64_t{plan_.left_tile} * gemm_chunk * facts_.element_bytes * chunks * plan_.parts;
    // Sums wait in memory for the next panel, unless there is none.
    const std::int64_t next_sums =
        last && !accumulate ? 0 : std::int64_t{facts_.tile_rows} * facts_.tile_columns;
    float* sums = at<float>(layout_.tiles);
    void* right = at<void>(layout_.right);
    kernels_.enter();
    for (std::int64_t j = 0; j < column_tiles(); ++j) {
      const std::int64_t column = j * facts_.tile_columns;
      kernels_.pack_right(
          right_, {column_ + column, facts_.tile_columns, begin, chunks, facts_.tile_columns, 1},
          right_shifts() + column, right);
      const std::uint8_t* left = left_panel_;
      for (std::int64_t i = 0; i < row_tiles(); ++i) {
        const std::int64_t rows =
            is_for_few_rows(plan_.unit)
                ? plan_.left_tile
                : std::min<std::int64_t>(facts_.tile_rows, rows_ - i * facts_.tile_rows);
        kernels_.multiply(left, right, static_cast<int>(rows), chunks, plan_.parts, accumulate,
                          sums);
        if (last) finish(sums, i, j);
        left += left_tile_bytes;
        sums += next_sums;
      }
    }
    kernels_.leave();
  }

  // A tile of sums, or a part of one, and where it belongs in the block.
  struct Tile {
    const float* sums;
    std::int64_t row, column;
    int rows, columns;
  };

  void finish(const float* sums, std::int64_t i, std::int64_t j) {
    const std::int64_t row = i * facts_.tile_rows, column = j * facts_.tile_columns;
    const Tile tile{
        sums, row, column, static_cast<int>(std::min<std::int64_t>(facts_.tile_rows, rows_ - row)),
        static_cast<int>(std::min<std::int64_t>(facts_.tile_columns, columns_ - column))};
    if (least_certain_ > 0 &&
        !kernels_.are_at_least(least_certain_, sums, tile.rows, tile.columns) && may_lose() &&
        is_lossy(tile)) {
      return finish_one_by_one(tile);
    }
    finish(tile, left_shifts() + row, right_shifts() + column,
           bias_ == nullptr ? nullptr : bias_ + column);
  }

  void finish(const Tile& tile, const std::int32_t* left_shifts, const std::int32_t* right_shifts,
              const float* bias) {
    const std::int64_t element = (row_ + tile.row) * finish_.row_stride + column_ + tile.column;
    kernels_.finish(finish_, tile.sums, tile.rows, tile.columns, left_shifts, right_shifts, bias,
                    out_ + element * static_cast<std::int64_t>(size_of(finish_.dtype)));
  }

  // Whether an output of this tile is small because products of it were taken for zero.
  bool is_lossy(const Tile& tile) const {
    for (int i = 0; i < tile.rows; ++i) {
      const float* sums = tile.sums + i * facts_.tile_columns;
      if (kernels_.are_at_least(least_certain_, sums, 1, tile.columns) ||
          left_spreads()[tile.row + i] == settled_row) {
        continue;
      }
      for (int j = 0; j < tile.columns; ++j) {
        if (is_lossy(sums[j], tile.row + i, tile.column + j)) return true;
      }
    }
    return false;
  }

  bool is_lossy(float sum, std::int64_t row, std::int64_t column) const {
    return !(std::fabs(sum) >= least_certain_) &&
           may_lose_products(left_spreads()[row], right_spreads()[column]);
  }

  // Each output like a tile of its own, with a sum that has lost nothing.
  void finish_one_by_one(const Tile& tile) {
    constexpr int widest = 32;
    float sums[widest] = {}, bias[widest] = {};
    std::int32_t right_shifts_of_one[widest] = {};
    for (int i = 0; i < tile.rows; ++i) {
      for (int j = 0; j < tile.columns; ++j) {
        const Tile one{sums, tile.row + i, tile.column + j, 1, 1};
        int left_shift = left_shifts()[one.row];
        right_shifts_of_one[0] = right_shifts()[one.column];
        sums[0] = tile.sums[i * facts_.tile_columns + j];
        if (is_lossy(sums[0], one.row, one.column)) {
          int exponent = 0;
          const double sum = lossless_sum(row_ + one.row, column_ + one.column);
          sums[0] = static_cast<float>(std::isfinite(sum) ? std::frexp(sum, &exponent) : sum);
          left_shift = -exponent;
          right_shifts_of_one[0] = 0;
        }
        if (bias_ != nullptr) bias[0] = bias_[one.column];
        finish(one, &left_shift, right_shifts_of_one, bias_ == nullptr ? nullptr : bias);
      }
    }
  }

  double lossless_sum(std::int64_t row, std::int64_t column) const {
    if (right_.panels == nullptr) return exact_sum(left_, row, right_, column);
    return exact_sum(left_, row,
                     read_panel_row(right_, column, at<std::uint8_t>(layout_.panel_row)), 0);
  }

  const GemmTask& task_;
  const CpuGemmPlan& plan_;
  const GemmUnitFacts facts_;
  const GemmKernels& kernels_;
  const GemmSlotLayout layout_;
  std::uint8_t* memory_;
  GemmMatrix left_;
  GemmMatrix right_;
  GemmFinish finish_;
  std::uint8_t* out_ = nullptr;
  const float* bias_ = nullptr;
  std::uint8_t* left_panel_ = nullptr;
  float least_certain_ = 0.0f;
  bool knows_wide_spreads_ = false;
  std::int64_t left_block_ = 0;
  std::int64_t row_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t column_ = 0;
  std::int64_t columns_ = 0;
};

}  // namespace

void gemm(const GemmTask& task, const CpuGemmPlan& plan, void* workspace) {
  Slots slots(plan, task.left.k, workspace);
  const auto multiply = [&](std::int64_t begin, std::int64_t end) {
    const int slot = slots.take();
    Block block(task, plan, slots.memory(slot));
    for (std::int64_t index = begin; index < end; ++index) block.run(index);
    slots.give_back(slot);
  };
  parallel_for(plan.blocks, 1, multiply, plan.slots);
}

}  // namespace mxkern::cpu
