// mxkern/kernels/gemm/portable/gemm.cuh: the product of bfloat16 rows for every GPU from sm_80 on.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm/column_groups.cuh"
#include "mxkern/kernels/gemm/common_factor.cuh"
#include "mxkern/kernels/device/gate.cuh"
#include "mxkern/kernels/gemm/other_outputs.cuh"
#include "mxkern/kernels/ptx/copy_async.cuh"
#include "mxkern/kernels/ptx/ldmatrix.cuh"
#include "mxkern/kernels/ptx/mma_bfloat16.cuh"
#include "mxkern/kernels/gemm/row_groups.cuh"
#include "mxkern/kernels/device/vector_io.cuh"

namespace mxkern::kernels {

// Rows of bfloat16 that start on 16 bytes. Memory reaches to the next 16 behind each of them.
struct PortableOperand {
  const std::uint8_t* data;
  std::int64_t rows;
  std::int64_t row_bytes, batch_bytes, part_bytes;
  const std::int32_t* exponents;  // null: 0
  std::int64_t exponent_step;     // from one matrix to the next
};

struct PortableParameters {
  PortableOperand left, right;
  std::int64_t batch, columns;  // K
  int parts;                    // of the left operand
  float alpha, beta;
  const float *left_tensor_scale, *right_tensor_scale;  // null: 1
  const void* bias;                                     // null: 0
  DType bias_dtype;
  void* out;
  DType out_dtype;
  std::int64_t row_stride, batch_stride;  // of out, in elements
  bool vector_stores;                     // every eighth element of out starts on 16 bytes
  SpreadGate gate;
  // Where rows of the left operand belong to groups: it and out are one matrix, and each group has
  // a right operand.
  GroupEnds groups;
  ColumnEnds column_groups;    // where columns do: each group has an output of the batch
  std::int64_t bias_step;      // from a group's to the next one's, in elements
  const float* group_factors;  // of the groups' outputs; null: 1
};

// What belongs to groups.
enum class PortableGroups { none, rows, columns };

// A thread block of four warps computes a square tile, each warp a quarter of it, `Warp` rows and
// columns. K passes through shared memory 32 elements at a time, `stages` ahead.
template <int Warp>
struct PortableTile {
  static constexpr int threads = 128;
  static constexpr int extent = 2 * Warp;
  static constexpr int depth = 32;  // of K in a stage
  static constexpr int stages = 4;
  static constexpr int operand_bytes = extent * depth * 2;
  static constexpr int stage_bytes = 2 * operand_bytes;
  static constexpr int sums_bytes = extent * extent * 4;
  static constexpr int shared_bytes =
      stages * stage_bytes > sums_bytes ? stages* stage_bytes : sums_bytes;
  static constexpr int fragments = Warp / 16;  // of 16 rows

  // Where 16 bytes of a stage lie: two rows share 128 bytes, and the pieces of eight rows at one
  // place of K are on different banks.
  __device__ static __forceinline__ int piece(int row, int at) {
    const int line = row / 2;
    return line * 128 + ((((row & 1) << 2) | at) ^ (line & 7)) * 16;
  }

  // Where eight float32 sums of a row start: groups of eight columns are exchanged within a row, so
  // that the rows that a warp writes together are on different banks.
  __device__ static __forceinline__ int sum_place(int row, int column) {
    return row * extent + (column ^ ((row & 7) << 3));
  }
};

template <int Warp, PortableGroups Groups>
class PortableBlock {
  using Tile = PortableTile<Warp>;

 public:
  __device__ PortableBlock(const PortableParameters& parameters, unsigned char* memory)
      : p(parameters),
        memory_(memory),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))),
        end_of_k_(p.columns),
        steps_of_part_(ceil_div(p.columns, Tile::depth)) {}

  // end_row: of the outputs that are stored.
  __device__ void run(std::int64_t first_row, std::int64_t end_row, std::int64_t first_column,
                      std::int64_t batch) {
    first_row_ = first_row;
    end_row_ = end_row;
    first_column_ = first_column;
    batch_ = batch;
    if constexpr (Groups == PortableGroups::columns) {
      const ColumnRange range = columns_of(p.column_groups, static_cast<int>(batch));
      first_of_k_ = range.begin;
      end_of_k_ = range.end;
      steps_of_part_ = ceil_div(range.count(), Tile::depth);
    }
#pragma unroll
    for (int i = 0; i < Tile::fragments; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * Tile::fragments; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums_[i][j][k] = 0.0f;
      }
    }
    const std::int64_t steps = steps_of_part_ * p.parts;
#pragma unroll
    for (int stage = 0; stage < Tile::stages - 1; ++stage) {
      if (stage < steps) load(stage);
      ptx::copy_async_commit();
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      ptx::copy_async_wait<Tile::stages - 2>();
      // Also: everybody is done with the stage that is loaded next.
      __syncthreads();
      if (step + Tile::stages - 1 < steps) load(step + Tile::stages - 1);
      ptx::copy_async_commit();
      multiply(static_cast<int>(step % Tile::stages));
    }
    ptx::copy_async_wait<0>();
    __syncthreads();
    write_sums();
    __syncthreads();
    finish();
    __syncthreads();
  }

 private:
  // Copies what a step takes to its stage; zeros where rows or columns end.
  __device__ __forceinline__ void load(std::int64_t step) {
    const std::int64_t part = step / steps_of_part_;
    const std::int64_t column = first_of_k_ + (step - part * steps_of_part_) * Tile::depth;
    const std::uint32_t stage = base_ + static_cast<int>(step % Tile::stages) * Tile::stage_bytes;
    const int at = static_cast<int>(threadIdx.x) % 4;
    const std::int64_t left_columns = end_of_k_ - column - at * 8;
    const int bytes = left_columns >= 8 ? 16 : left_columns <= 0 ? 0 : 2 * left_columns;
    const std::int64_t start = (column + at * 8) * 2;
    load_operand(p.left, stage, first_row_, start + part * p.left.part_bytes, bytes);
    load_operand(p.right, stage + Tile::operand_bytes, first_column_, start, bytes);
  }

  __device__ __forceinline__ void load_operand(const PortableOperand& operand, std::uint32_t stage,
                                               std::int64_t first, std::int64_t start, int bytes) {
    const int at = static_cast<int>(threadIdx.x) % 4;
    const std::uint8_t* matrix = operand.data + batch_ * operand.batch_bytes;
#pragma unroll
    for (int i = 0; i < Tile::extent / 32; ++i) {
      const int row = static_cast<int>(threadIdx.x) / 4 + i * 32;
      const bool inside = first + row < operand.rows && bytes > 0;
      // What is not read still needs an address.
      const std::uint8_t* from =
          inside ? matrix + (first + row) * operand.row_bytes + start : matrix;
      ptx::copy_async_16(stage + Tile::piece(row, at), from, inside ? bytes : 0);
    }
  }

  __device__ __forceinline__ void multiply(int stage) {
    const std::uint32_t left = base_ + stage * Tile::stage_bytes;
    const std::uint32_t right = left + Tile::operand_bytes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < Tile::depth / 16; ++k) {
      std::uint32_t rows[Tile::fragments][4], columns[Tile::fragments][4];
#pragma unroll
      for (int i = 0; i < Tile::fragments; ++i) {
        // Rows 0..7 and 8..15 at the first 8 of K, then at the second.
        const int row = warp_row() + i * 16 + lane % 16;
        ptx::load_matrices(rows[i], left + Tile::piece(row, k * 2 + lane / 16));
      }
#pragma unroll
      for (int i = 0; i < Tile::fragments; ++i) {
        // Columns 0..7 at both halves of K, then columns 8..15.
        const int column = warp_column() + i * 16 + lane / 16 * 8 + lane % 8;
        ptx::load_matrices(columns[i], right + Tile::piece(column, k * 2 + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < Tile::fragments; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * Tile::fragments; ++j) {
          const std::uint32_t* pair = columns[j / 2] + j % 2 * 2;
          ptx::multiply_add(sums_[i][j], rows[i], pair[0], pair[1]);
        }
      }
    }
  }

  // From fragments to shared memory, where a thread finds eight columns of a row together.
  __device__ __forceinline__ void write_sums() {
    auto* sums = reinterpret_cast<float*>(memory_);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < Tile::fragments; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * Tile::fragments; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp_row() + i * 16 + half * 8 + lane / 4;
          const int column = warp_column() + j * 8;
          *reinterpret_cast<float2*>(sums + Tile::sum_place(row, column) + lane % 4 * 2) =
              make_float2(sums_[i][j][2 * half], sums_[i][j][2 * half + 1]);
        }
      }
    }
  }

  __device__ void finish() {
    switch (p.out_dtype) {
      case DType::float32: finish_as<float>(); break;
      case DType::float16: finish_as<float16>(); break;
      case DType::bfloat16: finish_as<bfloat16>(); break;
    }
  }

  // alpha * tensor scales * 2^exponents * sum + beta * out + bias, rounded once.
  template <class T>
  __device__ __forceinline__ void finish_as() {
    constexpr int across = Tile::extent / 8;
    constexpr int down = Tile::threads / across;
    const auto* sums = reinterpret_cast<const float*>(memory_);
    const int at = static_cast<int>(threadIdx.x) % across * 8;
    const std::int64_t column = first_column_ + at;
    const std::int64_t columns = p.right.rows - column;
    if (columns <= 0) return;
    const std::int32_t* exponents = p.right.exponents;
    int powers[8];
    float bias[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool inside = i < columns;
      powers[i] = inside && exponents != nullptr
                      ? exponents[batch_ * p.right.exponent_step + column + i]
                      : 0;
      bias[i] = inside && p.bias != nullptr ? bias_at(column + i) : 0.0f;
    }
    const CommonFactor common = common_factor(p);
    float fraction = common.fraction;
    if constexpr (Groups != PortableGroups::none) {
      if (p.group_factors != nullptr) fraction *= p.group_factors[batch_];
    }
    for (int i = static_cast<int>(threadIdx.x) / across; i < Tile::extent; i += down) {
      const std::int64_t row = first_row_ + i;
      if (row >= end_row_) return;
      int power = common.exponent;
      if (p.left.exponents != nullptr) {
        power += p.left.exponents[batch_ * p.left.exponent_step + row];
      }
      T* out = static_cast<T*>(p.out) + batch_ * p.batch_stride + row * p.row_stride + column;
      const float4* place = reinterpret_cast<const float4*>(sums + Tile::sum_place(i, at));
      const float4 low = place[0], high = place[1];
      float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float before[8] = {};
      if (p.beta != 0.0f) unpack(load_guarded(out, columns, p.vector_stores), before);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        v[k] = scaled(v[k] * fraction, power + powers[k]) + bias[k];
        if (p.beta != 0.0f) v[k] += p.beta * before[k];
      }
      if (p.vector_stores && columns >= 8) {
        store_octet(out, pack<T>(v));
      } else {
        store_elements(out, pack<T>(v), columns);
      }
    }
  }

  // value * 2^exponent, in two factors that are float32 each: halves of a sum of two exponents.
  __device__ static __forceinline__ float scaled(float value, int exponent) {
    const int clamped = min(max(exponent, -252), 254);
    const int half = clamped >> 1;
    const auto power = [](int e) {
      return float_of(static_cast<std::uint32_t>(e + float32::bias) << float32::mantissa_bits);
    };
    return value * power(half) * power(clamped - half);
  }

  __device__ __forceinline__ float bias_at(std::int64_t column) const {
    if constexpr (Groups != PortableGroups::none) column += batch_ * p.bias_step;
    switch (p.bias_dtype) {
      case DType::float16: return to_float(static_cast<const float16*>(p.bias)[column]);
      case DType::bfloat16: return to_float(static_cast<const bfloat16*>(p.bias)[column]);
      case DType::float32: break;
    }
    return static_cast<const float*>(p.bias)[column];
  }

  __device__ static __forceinline__ int warp_row() {
    return static_cast<int>(threadIdx.x) / 64 * Warp;
  }
  __device__ static __forceinline__ int warp_column() {
    return static_cast<int>(threadIdx.x) / 32 % 2 * Warp;
  }

  const PortableParameters& p;
  unsigned char* memory_;
  std::uint32_t base_;
  std::int64_t first_of_k_ = 0, end_of_k_;
  std::int64_t steps_of_part_;
  std::int64_t first_row_ = 0, end_row_ = 0, first_column_ = 0, batch_ = 0;
  float sums_[Tile::fragments][2 * Tile::fragments][4];
};

// A tile of the rows of one group. Tiles that run at the same time have the same rows.
template <int Warp>
__device__ __forceinline__ void multiply_group(const PortableParameters& p, unsigned char* memory) {
  using Tile = PortableTile<Warp>;
  const auto across = static_cast<int>(ceil_div(p.right.rows, Tile::extent));
  const int place = static_cast<int>(blockIdx.x) / across;
  const GroupRows rows = rows_in_place<Tile::extent>(p.groups, place);
  const std::int64_t column = (static_cast<int>(blockIdx.x) - place * across) * Tile::extent;
  if (rows.group < p.groups.groups) {
    PortableBlock<Warp, PortableGroups::rows>(p, memory).run(rows.first, rows.first + rows.count,
                                                             column, rows.group);
    return;
  }
  const std::int64_t columns = lower_of<std::int64_t>(p.right.rows - column, Tile::extent);
  const OtherOutputs outputs = {p.out,      p.out_dtype, p.row_stride, rows.first,
                                rows.count, column,      columns};
  rows.are_ordered ? outputs.scale(p.beta) : outputs.poison();
}

// Of the outputs of groups of columns whose ends make no sense.
template <int Warp>
__device__ void fill_with_nan(const PortableParameters& p, std::int64_t row, std::int64_t column,
                              std::int64_t group) {
  constexpr int extent = PortableTile<Warp>::extent;
  void* out = static_cast<char*>(p.out) +
              group * p.batch_stride * static_cast<std::int64_t>(size_of(p.out_dtype));
  OtherOutputs{out,
               p.out_dtype,
               p.row_stride,
               row,
               lower_of<std::int64_t>(p.left.rows - row, extent),
               column,
               lower_of<std::int64_t>(p.right.rows - column, extent)}
      .poison();
}

// A thread block a tile. Tiles that run at the same time form squares, so that what they read is in
// the cache for each other.
template <int Warp, PortableGroups Groups>
__global__ void __launch_bounds__(PortableTile<Warp>::threads, Warp == 64 ? 2 : 4)
    gemm_portable_kernel(const __grid_constant__ PortableParameters p) {
  using Tile = PortableTile<Warp>;
  extern __shared__ __align__(128) unsigned char memory[];
  if constexpr (Groups == PortableGroups::rows) return multiply_group<Warp>(p, memory);
  if (!is_open(p.gate)) return;
  constexpr std::int64_t band = 8;  // rows of tiles that are gone through together
  const std::int64_t down = ceil_div(p.left.rows, Tile::extent);
  const std::int64_t across = ceil_div(p.right.rows, Tile::extent);
  const std::int64_t tile = blockIdx.x;
  const std::int64_t first = tile / (band * across) * band;
  const std::int64_t height = lower_of<std::int64_t>(band, down - first);
  const std::int64_t within = tile % (band * across);
  const std::int64_t row = (first + within % height) * Tile::extent;
  const std::int64_t column = within / height * Tile::extent;
  bool has_order = true;
  if constexpr (Groups == PortableGroups::columns) has_order = are_ordered(p.column_groups);
  PortableBlock<Warp, Groups> block(p, memory);
  for (std::int64_t batch = blockIdx.y; batch < p.batch; batch += gridDim.y) {
    if (has_order) {
      block.run(row, p.left.rows, column, batch);
    } else {
      fill_with_nan<Warp>(p, row, column, batch);
    }
  }
}

}  // namespace mxkern::kernels
