// mxkern/kernels/operands/expand.cuh: operands of any kind to bfloat16 under one power of two a
// row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/code_unit.cuh"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/dequantize/dequantize.cuh"
#include "mxkern/kernels/device/row_team.cuh"

namespace mxkern::kernels {

struct ExpandedRows {
  bfloat16* data;  // rows start on 16 bytes and have room for whole 16 bytes
  std::int64_t row_elements, part_elements, batch_elements;
  std::int32_t* exponents;
};

// A block-scaled operand, or, with `codes` null, a plain one.
struct ExpandOperand {
  std::int64_t batch, rows, columns;
  Scheme scheme;
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  bool scales_in_words;  // see largest_scale
  DType dtype;
  const void* x;
  std::int64_t batch_stride, row_stride;
  bool is_whole;  // units are aligned and end rows; x starts on 16 bytes
  ExpandedRows out;
  std::int64_t groups;  // of rows, one a thread block at a time
  int log2_team;
  ZeroedCounters counters;
};

struct ExpandParameters {
  ExpandOperand operand;
  Follows follows;
  ZeroedCounters counters;
};

// One row of an operand, or none, for a thread of the team that has it.
struct ExpandRow {
  const ExpandOperand& o;
  RowTeam team;
  std::int64_t index;  // of the row in the batch
  bool exists;
  TeamRow at;
  int octets;  // of the row; 0: there is no row
  bfloat16* out;

  __device__ __forceinline__ ExpandRow(const ExpandOperand& operand, const RowTeam& place,
                                       std::int64_t row)
      : o(operand),
        team(place),
        index(row),
        exists(index < operand.batch * operand.rows),
        at(exists ? index : 0, operand.rows),
        octets(exists ? static_cast<int>(ceil_div(operand.columns, 8)) : 0),
        out(operand.out.data + at.batch * operand.out.batch_elements +
            at.row * operand.out.row_elements) {}

  // The team's row of a group.
  __device__ __forceinline__ static ExpandRow of_group(const ExpandOperand& operand,
                                                       std::int64_t group) {
    const RowTeam team(operand.log2_team);
    return {operand, team, group * (team_threads >> team.log2_threads) + team.row};
  }

  // By one thread of the row.
  __device__ __forceinline__ void write_exponent(int exponent) const {
    if (team.rank == 0 && exists) o.out.exponents[index] = exponent;
  }
  __device__ __forceinline__ void store(int octet, const RawOctet<bfloat16>& raw) const {
    store_octet(out + std::int64_t{octet} * 8, raw);
  }
};

// Eight values under a power of two that may lie beyond those of float32.
__device__ __forceinline__ RawOctet<bfloat16> scale_octet(float (&v)[8], float scale) {
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(v[i], scale);
  return pack<bfloat16>(v);
}

// The scale of a block in a row, as a float32.
template <class S>
__device__ __forceinline__ float relative_scale(unsigned byte, int power_of_zero) {
  if constexpr (!S::ScaleFormat::is_power_of_two)
    return fast_scale<S>(static_cast<std::uint8_t>(byte));
  const int power = power_of_zero + static_cast<int>(byte);
  if (byte == E8M0::nan_byte) return float_of(float32::nan_bits);
  return power < -149 ? 0.0f : float32::exp2(power);
}

// The codes that a lane expands at a time. Half as many of 8 bits would have twice as many threads
// find the largest scale and where their row lies, which takes longer than expanding.
template <class Format>
using ExpandUnit = CodeUnit<Format, 2>;

// Codes under block scales. Power-of-two scales are taken relative to the largest of the row.
template <class S>
struct ExpandCodes {
  using Format = typename S::Format;
  using Unit = ExpandUnit<Format>;
  static constexpr int units_in_block = S::block / Unit::codes;
  static constexpr int octets_in_block = S::block / 8;

  const ExpandRow& row;
  ScaleRow scales;
  const std::uint8_t* codes;

  __device__ __forceinline__ explicit ExpandCodes(const ExpandRow& place)
      : row(place),
        scales(place.o.scales, place.o.scale_index, place.at),
        codes(place.o.codes + (place.exists ? place.index : 0) * place.o.code_row_bytes) {}

  // What the scale byte 0 stands for.
  __device__ __forceinline__ int power_of_zero(int exponent) const {
    if constexpr (!S::ScaleFormat::is_power_of_two) return 0;
    const int raised = exponent - Format::max_exponent;
    const unsigned largest =
        largest_scale(scales, row.exists ? row.o.scale_index.blocks : 0, row.o.scales_in_words);
    row.write_exponent(static_cast<int>(largest) - E8M0::bias - raised);
    return raised - static_cast<int>(largest);
  }

  __device__ static __forceinline__ RawOctet<bfloat16> expand(Octet octet, float scale) {
    float v[8];
    decode_octet<Format>(octet, v);
    return scale_octet(v, scale);
  }
  __device__ static __forceinline__ uint4 piece(const RawOctet<bfloat16>& raw) {
    return make_uint4(raw.word[0], raw.word[1], raw.word[2], raw.word[3]);
  }

  // Whole units at aligned addresses, all of which only move on.
  __device__ __forceinline__ void expand_whole(int exponent) const {
    const int threads = row.team.threads();
    const int lane = row.team.rank % 32;
    const int code_step = threads * Unit::bytes, out_step = threads * Unit::codes;
    const auto scale_step = static_cast<int>(scales.offset(threads / units_in_block));
    const std::uint8_t* from = codes + row.team.rank * Unit::bytes;
    const std::uint8_t* scale = scales.address(row.team.rank / units_in_block);
    bfloat16* to = row.out + (row.team.rank - lane) * Unit::codes;
    Unit loaded[team_loads];
    unsigned bytes[team_loads];
    const auto load = [&](int left) {
#pragma unroll
      for (int i = 0; i < team_loads; ++i) {
        if (i * threads + lane >= left) continue;
        loaded[i] = Unit::load(from + i * code_step);
        bytes[i] = scale[i * scale_step];
      }
    };
    // For the warp: its lanes store together.
    int left = row.octets / Unit::octets - (row.team.rank - lane);
    // The first loads are on their way while the largest scale is found.
    load(left);
    const int zero = power_of_zero(exponent);
#pragma unroll 1
    while (left > 0) {
#pragma unroll
      for (int i = 0; i < team_loads; ++i) {
        const int count = left - i * threads;
        if (count <= 0) break;
        const float power = relative_scale<S>(bytes[i], zero);
        store_halves(to + i * out_step, piece(expand(loaded[i].octet(0), power)),
                     piece(expand(loaded[i].octet(1), power)), count);
      }
      from += team_loads * code_step;
      scale += team_loads * scale_step;
      to += team_loads * out_step;
      left -= team_loads * threads;
      load(left);
    }
  }

  // Anything, octet by octet.
  __device__ __forceinline__ void expand_ragged(int exponent) const {
    const int zero = power_of_zero(exponent);
#pragma unroll 1
    for (int octet = row.team.rank; octet < row.octets; octet += row.team.threads()) {
      const std::int64_t start = std::int64_t{octet} * Format::bits;
      const Octet loaded = load_codes<Format::bits>(codes + start, row.o.code_row_bytes - start);
      store_octet(row.out + std::int64_t{octet} * 8,
                  expand(loaded, relative_scale<S>(scales[octet / octets_in_block], zero)));
    }
  }

  __device__ __forceinline__ void operator()(int exponent) const {
    if (row.o.is_whole) {
      expand_whole(exponent);
    } else {
      expand_ragged(exponent);
    }
  }
};

// What is left of finite values after their upper eight significant bits, which go to `upper`, a
// float32 a value; Inf and NaN leave nothing.
__device__ __forceinline__ void split_octet(float (&v)[8], float (&upper)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t bits = bits_of(v[i]);
    const bool finite = float32::is_finite(bits);
    // A NaN whose payload lies in the lower half must not become Inf.
    const std::uint32_t quiet =
        (bits & float32::magnitude_mask) > float32::infinity_bits ? 0x00400000u : 0u;
    upper[i] = float_of((bits | quiet) & 0xFFFF0000u);
    v[i] = finite ? v[i] - upper[i] : 0.0f;
  }
}

// Plain elements as the sum of so many bfloat16 that nothing is lost. The smallest ones come first:
// what tensor cores cut off of a sum, with each step, is in proportion to what the sum is already.
template <class T>
__device__ __forceinline__ void expand_plain(const ExpandRow& row, unsigned* slots, int exponent) {
  constexpr int parts = sizeof(T) == 4 ? 3 : dtype_of<T>::value == DType::float16 ? 2 : 1;
  const ExpandOperand& o = row.o;
  const int threads = row.team.threads();
  const T* x =
      static_cast<const T*>(o.x) + row.at.batch * o.batch_stride + row.at.row * o.row_stride;
  const auto load = [&](int octet) {
    const std::int64_t start = std::int64_t{octet} * 8;
    return load_guarded(x + start, o.columns - start, o.is_whole);
  };
  float factor[2] = {1.0f, 1.0f};
  if constexpr (parts == 3) {
    // float32 goes further down than bfloat16 with its lower parts: rows are moved up.
    unsigned largest = 0;
    for (int octet = row.team.rank; octet < row.octets; octet += threads) {
      const RawOctet<T> raw = load(octet);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t magnitude = raw.word[i] & float32::magnitude_mask;
        if (float32::is_finite(magnitude)) largest = max(largest, magnitude);
      }
    }
    largest = row.team.max_of(largest, slots);
    const int field = max(static_cast<int>(float32::exponent_field(largest)), 1);
    const int up = exponent - (field - float32::bias);
    factor[0] = float32::exp2(up / 2);
    factor[1] = float32::exp2(up - up / 2);
    row.write_exponent(-up);
  }
#pragma unroll 2
  for (int octet = row.team.rank; octet < row.octets; octet += threads) {
    const RawOctet<T> raw = load(octet);
    if constexpr (parts == 1) {
      row.store(octet, raw);
    } else {
      float v[8], upper[8];
      unpack(raw, v);
      if constexpr (parts == 3) {
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = __fmul_rn(__fmul_rn(v[k], factor[0]), factor[1]);
      }
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        split_octet(v, upper);
        store_octet(row.out + std::int64_t{octet} * 8 + (parts - 1 - part) * o.out.part_elements,
                    pack<bfloat16>(upper));
      }
    }
  }
}

inline constexpr int expand_blocks = 4;  // of a multiprocessor

// The rows of an operand of one kind: a scheme, or the type of plain elements. The largest elements
// of a row get an exponent of Exponent.
template <class Kind, int Exponent>
__device__ __forceinline__ void expand_row(const ExpandRow& row, unsigned* slots) {
  if constexpr (requires { typename Kind::Format; }) {
    ExpandCodes<Kind>{row}(Exponent);
  } else {
    expand_plain<Kind>(row, slots, Exponent);
  }
}

// One operand, in groups of rows; each thread block takes every gridDim.x-th group.
template <class Kind, int Exponent>
__global__ void __launch_bounds__(team_threads, expand_blocks)
    expand_kernel(const __grid_constant__ ExpandParameters p) {
  __shared__ unsigned slots[2][team_threads / 32];
  wait_at_start(p.follows);
  const ExpandOperand& o = p.operand;
  o.counters.clear();
  p.counters.clear();
  int turn = 0;
#pragma unroll 1
  for (std::int64_t i = blockIdx.x; i < o.groups; i += gridDim.x) {
    turn ^= 1;  // the slots of the row before may still be read
    expand_row<Kind, Exponent>(ExpandRow::of_group(o, i), slots[turn]);
  }
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
