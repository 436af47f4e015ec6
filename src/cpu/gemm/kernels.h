// cpu/gemm/kernels.h: what a unit brings to the matrix product: packing, multiplying, finishing.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/scale_layout.h"
#include "plan/gemm_cpu.h"

namespace mxkern::cpu {

// One matrix of an operand: rows x k elements, codes with scales or plain.
struct GemmMatrix {
  bool is_plain;
  Scheme scheme;
  DType dtype;
  const std::uint8_t* data;  // codes, or plain elements
  std::int64_t row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  std::int64_t rows;
  std::int64_t k;
  // Of a right operand that was prepared as panels: these are read instead of codes and scales,
  // which may be null. See mxkern/tensor/panel_layout.h.
  const std::uint8_t* panels = nullptr;
};

// A part of a matrix that is packed into a panel: tiles of `tile` rows, `chunks` chunks along K.
// Rows beyond the matrix and elements beyond K are packed as zeros.
struct GemmPanel {
  std::int64_t row;
  std::int64_t rows;  // a multiple of the tile
  std::int64_t k;     // a multiple of 128
  int chunks;
  int tile;
  int parts;
};

// What becomes of a tile of sums: out = factor * 2^(exponent - shifts) * sum + beta * out + bias.
struct GemmFinish {
  float factor;
  int exponent;
  float beta;
  DType dtype;
  std::int64_t row_stride;  // of out, in elements
};

struct GemmKernels {
  GemmUnit unit;
  // For `count` rows, the power of two that a row is multiplied with before it is packed. It brings
  // the row's largest scale to a place where sums of products neither overflow nor vanish. And a
  // bound on the row's spread (see exact_sum.h), which is found without a look at codes.
  void (*row_shifts)(const GemmMatrix& matrix, std::int64_t row, std::int64_t count,
                     std::int32_t* shifts, std::int32_t* spreads);
  // Left: [tile][chunk][part][row][32]. Right: [tile][k][column], where a k of bfloat16 is a pair;
  // units for few rows keep where the rows lie, and decode them when they multiply.
  void (*pack_left)(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                    void* out);
  void (*pack_right)(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                     void* out);
  // Around a run of multiplications on one thread.
  void (*enter)();
  void (*leave)();
  // sums (+)= left tile . right tile for the first `rows` rows, of units for few rows for all that
  // are packed together; sums is tile_rows x tile_columns.
  void (*multiply)(const void* left, const void* right, int rows, int chunks, int parts,
                   bool accumulate, float* sums);
  // Whether all of rows x columns of a tile of sums have a magnitude of `least` or more.
  bool (*are_at_least)(float least, const float* sums, int rows, int columns);
  // Writes rows x columns of a tile to out; bias may be null.
  void (*finish)(const GemmFinish& finish, const float* sums, int rows, int columns,
                 const std::int32_t* left_shifts, const std::int32_t* right_shifts,
                 const float* bias, void* out);
};

const GemmKernels& gemm_kernels(GemmUnit unit);

// Compiled in, and supported by the processor and the operating system; of one thread.
CpuGemmCapabilities gemm_capabilities_of_machine();

// The same with the number of threads at the first call, for good: a product has to find the
// working memory that it needs in what was asked for earlier, whatever the number is by then.
CpuGemmCapabilities gemm_capabilities();

}  // namespace mxkern::cpu
