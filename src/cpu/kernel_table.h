// cpu/kernel_table.h: what each instruction set implements, as plain functions over lines.
// A line is a stretch of elements along the block axis of the result: contiguous where it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "cpu/runtime/cache.h"
#include "cpu/runtime/instruction_set.h"
#include "mxkern/core/dtype.h"
#include "mxkern/numerics/hadamard.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/numerics/scale_rule.h"
#include "mxkern/numerics/tensor_scale.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::cpu {

// Tasks start on multiples of this many elements along a line: whole blocks of every scheme, whole
// Hadamard groups, whole tiles of swizzled scales of blocks of up to 32.
inline constexpr std::int64_t line_unit = 128;

// The elements of the largest block that any scheme has; as many lines make a square.
inline constexpr std::int64_t largest_block = [] {
  int block = 32;
  for (const Scheme scheme : all_schemes) block = higher_of(block, facts_of(scheme).block);
  return block;
}();

// The scales of one matrix, and the first of those that a task is about. In swizzled layout the
// first block is a multiple of ScaleIndex::tile_blocks, unless blocks have 64 elements.
struct ScaleCursor {
  std::uint8_t* scales;
  ScaleIndex index;
  std::int64_t row;
  std::int64_t block;
};

// Rows of memory that will be wanted soon.
struct Ahead {
  const void* start = nullptr;
  std::int64_t stride = 0;  // bytes from row to row
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
};

// As many lanes as any instruction set has.
inline constexpr std::int64_t widest_lanes = 16;

// What four_over_six takes for squares whose lines are columns of the tensor: the elements of as
// many squares as there are lanes, of as many rows and columns of each.
inline constexpr std::size_t choice_bytes = 16 * 16 * widest_lanes * sizeof(float);

// Quantizes `lines` lines of `elements`; each starts on a block, and only the end of a row of the
// result may be a short block. `square` joins `block` lines under one scale; the first line starts
// such a group.
struct QuantizeTask {
  const void* x;
  std::int64_t x_stride;        // elements from line to line
  const std::uint16_t* random;  // of stochastic rounding: a word an element
  std::int64_t random_stride;
  std::int64_t lines;
  std::int64_t elements;
  std::uint8_t* codes;
  std::int64_t code_stride;  // bytes from line to line
  ScaleCursor scales;
  ScaleRule rule;
  TensorScale tensor;
  bool square;
  bool transposed;  // the lines are columns of the tensor
  bool four_over_six;
  BlockError block_error;
  std::byte* choice;  // choice_bytes, aligned to 64, of four_over_six where they are needed
  bool streams;       // whether the codes are more than caches hold: see StreamedBytes
};

// A random Hadamard transform: the sign bit of each element of a group, ready for an exclusive or.
struct HadamardSigns {
  int size;
  std::uint32_t bits[128];

  HadamardSigns(int size, SignMask signs);
};

// Where lines that lie across memory are put together.
struct AcrossMemory {
  static constexpr int most = 128;  // lines, and elements of a line, of a task
  static constexpr int rows = 32;   // elements of a line at a time
  static constexpr int code_stride = cache_line + most;

  // Rows of x without gaps, `most` elements from row to row.
  alignas(cache_line) std::byte copy[rows * most * sizeof(float)];
  // The words of their elements, of stochastic rounding.
  alignas(cache_line) std::uint16_t random[rows * most];
  // Codes of each line: first those that the task before, of the elements before these, left here
  // as they did not fill a line of the cache. Tasks take turns, as the codes of the one before are
  // written while the next one computes.
  alignas(cache_line) std::uint8_t codes[2][most * code_stride];
  int turn = 0;
  int carried = 0;

  // Codes on their way past the caches: whole lines of the cache from `begin` to `end`, and what is
  // before and, of the last task, behind these.
  struct Stream {
    std::uint8_t* target;
    std::int64_t stride;
    const std::uint8_t* codes;
    std::uint8_t* rest;  // where the next task has its codes
    std::int64_t lines = 0;
    std::int64_t begin;
    std::int64_t end;
    std::int64_t bytes;
    bool is_last;
  } stream;
};

// Random words of rows of a tensor. index: of the first element, in its tensor; stride: elements
// from row to row of the tensor.
struct RandomRows {
  std::uint64_t seed;
  std::uint64_t offset;
  std::uint64_t index;
  std::int64_t stride;
};

// Quantizes lines that lie across memory: element e of line l is x[e * x_stride + l].
struct QuantizeAcrossTask {
  QuantizeTask lines;
  const HadamardSigns* signs;  // null: no transform; its groups are at most AcrossMemory::rows
  RandomRows random;           // of stochastic rounding, instead of lines.random
  AcrossMemory& memory;
  // Whether codes are more than caches hold: they are written past them, in whole lines of the
  // cache, of which no other memory is read. `code_stride` is a multiple of those.
  bool streams;
  bool is_last;  // no task follows that goes on with these lines
  bool is_end;   // no task follows with this memory
  bool is_near;  // whether what is asked for is in the second-level cache already
  Ahead ahead;   // asked for in the meantime
};

// Dequantizes lines; the counterpart of QuantizeTask.
struct DequantizeTask {
  const std::uint8_t* codes;
  std::int64_t code_stride;
  ScaleCursor scales;
  float tensor_scale;
  std::int64_t lines;
  std::int64_t elements;
  void* out;
  std::int64_t out_stride;  // elements from line to line
  bool streams;             // whether the output is more than caches hold: see StreamedBytes
};

// SwiGLU of a line. others: what gates let through, where these lie apart; interleaved, both are in
// turn in `gates`.
struct SwigluTask {
  const void* gates;
  const void* others;
  void* out;
  std::int64_t count;
  float alpha, limit, offset;
};

struct AnyKernels;

struct KernelTable {
  using Quantize = void (*)(const QuantizeTask&);
  using QuantizeAcross = void (*)(const QuantizeAcrossTask&);
  using Dequantize = void (*)(const DequantizeTask&);
  // Bits of the largest finite magnitude as float32.
  using FiniteAmax = std::uint32_t (*)(const void* x, std::int64_t count);
  // target[c * target_stride + r] = source[r * source_stride + c], strides in elements.
  using Transpose = void (*)(const void* source, std::int64_t source_stride, void* target,
                             std::int64_t target_stride, std::int64_t rows, std::int64_t columns);
  // count: a multiple of the size. target may be source.
  using HadamardLine = void (*)(const void* source, void* target, std::int64_t count,
                                const HadamardSigns& signs, bool inverse);
  // In place: element e of line l is x[e * x_stride + l]. rows: a multiple of the size, which is at
  // most AcrossMemory::rows; lines: a multiple of widest_lanes.
  using HadamardAcross = void (*)(void* x, std::int64_t x_stride, std::int64_t rows,
                                  std::int64_t lines, const HadamardSigns& signs);
  using SwigluLine = void (*)(const SwigluTask&);
  // The words of elements index .. index + count of a tensor.
  using RandomWords = void (*)(std::uint64_t seed, std::uint64_t offset, std::uint64_t index,
                               std::int64_t count, std::uint16_t* words);

  Quantize quantize[std::size(all_schemes)][std::size(all_dtypes)][std::size(all_roundings)];
  // Null for schemes whose blocks are longer than AcrossMemory::rows.
  QuantizeAcross quantize_across[std::size(all_schemes)][std::size(all_dtypes)]
                                [std::size(all_roundings)];
  Dequantize dequantize[std::size(all_schemes)][std::size(all_dtypes)];
  FiniteAmax finite_amax[std::size(all_dtypes)];
  HadamardLine hadamard[std::size(all_dtypes)];
  HadamardAcross hadamard_across[std::size(all_dtypes)];
  SwigluLine swiglu[std::size(all_dtypes)][2];  // interleaved: the second
  Transpose transpose_16;
  Transpose transpose_32;
  RandomWords random_words;
  const AnyKernels* any;  // for formats that are known at run time
};

// The kernels of an instruction set that is available.
const KernelTable& kernels_for(InstructionSet set);

// Those of the best one.
const KernelTable& best_kernels();

}  // namespace mxkern::cpu
