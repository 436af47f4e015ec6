// mxkern/kernels/expand.cuh: operands of any kind to bfloat16 under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/core_gate.cuh"
#include "mxkern/kernels/dequantize.cuh"
#include "mxkern/kernels/row_team.cuh"
#include "mxkern/numerics/visit.h"

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
  DType dtype;
  const void* x;
  std::int64_t batch_stride, row_stride;
  ExpandedRows out;
  std::int64_t groups;  // of rows, one a thread block at a time
  int log2_team;
  bool vector_loads;  // eight elements start on their own size (6 bits: on 2 bytes)
};

struct ExpandParameters {
  ExpandOperand operand[2];
  SpreadGate gate;
};

// One row of an operand, or none, for a thread of the team that has it.
struct ExpandPlace {
  const ExpandOperand& o;
  const RowTeam& team;
  unsigned* slots;
  std::int64_t index;   // of the row
  std::int64_t octets;  // of the row; 0: no row
  TeamRow at;

  __device__ __forceinline__ ExpandPlace(const ExpandOperand& operand, const RowTeam& team,
                                         unsigned* slots, std::int64_t group)
      : o(operand),
        team(team),
        slots(slots),
        index((group << (8 - operand.log2_team)) + team.row),
        octets(index < operand.batch * operand.rows ? ceil_div(operand.columns, 8) : 0),
        at(index < operand.batch * operand.rows ? index : 0, operand.rows) {}

  __device__ __forceinline__ bool is_first() const {
    return team.rank == 0 && index < o.batch * o.rows;
  }
  __device__ __forceinline__ std::int64_t octet(std::int64_t step, int i) const {
    return team.rank + ((step * team_loads + i) << team.log2_threads);
  }
  __device__ __forceinline__ std::int64_t steps() const {
    const std::int64_t in_step = std::int64_t{team_loads} << team.log2_threads;
    return ceil_div(ceil_div(o.columns, 8), in_step);
  }
  __device__ __forceinline__ void store(std::int64_t octet, int part,
                                        const RawOctet<bfloat16>& raw) const {
    bfloat16* row = o.out.data + at.batch * o.out.batch_elements + at.row * o.out.row_elements;
    store_octet(row + part * o.out.part_elements + octet * 8, raw);
  }
};

// Eight values under a power of two that may lie beyond those of float32.
__device__ __forceinline__ RawOctet<bfloat16> scale_octet(float (&v)[8], float scale) {
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(v[i], scale);
  return pack<bfloat16>(v);
}

// Codes under block scales. Power-of-two scales are taken relative to the largest of the row.
template <class S>
__device__ __forceinline__ void expand_codes(const ExpandPlace& place, int exponent) {
  using Format = typename S::Format;
  constexpr int octets_in_block = S::block / 8;
  const ExpandOperand& o = place.o;
  const ScaleRow scales(o.scales, o.scale_index, place.at);
  const std::uint8_t* codes = o.codes + (place.at.batch * o.rows + place.at.row) * o.code_row_bytes;
  const std::int64_t whole = o.vector_loads ? o.columns / 8 : 0;
  Octet loaded[team_loads] = {};
  unsigned bytes[team_loads] = {};
  const auto load = [&](std::int64_t step) {
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const std::int64_t octet = place.octet(step, i);
      if (octet >= place.octets) break;
      const std::uint8_t* from = codes + octet * Format::bits;
      loaded[i] = octet < whole
                      ? load_whole_codes<Format::bits>(from)
                      : load_codes<Format::bits>(from, o.code_row_bytes - octet * Format::bits);
      bytes[i] = scales[octet / octets_in_block];
    }
  };
  load(0);
  unsigned largest = 0;
  if constexpr (!S::has_tensor_scale) {
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      if (bytes[i] != E8M0::nan_byte) largest = max(largest, bytes[i]);
    }
    for (std::int64_t octet = place.octet(1, 0); octet < place.octets;
         octet += place.team.threads()) {
      const unsigned byte = scales[octet / octets_in_block];
      if (byte != E8M0::nan_byte) largest = max(largest, byte);
    }
    largest = place.team.max_of(largest, place.slots);
  }
  const int raised = exponent - Format::max_exponent;
  for (std::int64_t step = 0; step < place.steps(); ++step) {
    if (step > 0) load(step);
#pragma unroll
    for (int i = 0; i < team_loads; ++i) {
      const std::int64_t octet = place.octet(step, i);
      if (octet >= place.octets) break;
      float scale;
      if constexpr (S::has_tensor_scale) {
        scale = fast_scale<S>(static_cast<std::uint8_t>(bytes[i]));
      } else {
        const int power = raised - static_cast<int>(largest - bytes[i]);
        scale = bytes[i] == E8M0::nan_byte ? float_of(float32::nan_bits)
                : power < -149             ? 0.0f
                                           : float32::exp2(power);
      }
      float v[8];
      decode_octet<Format>(loaded[i], v);
      place.store(octet, 0, scale_octet(v, scale));
    }
  }
  if constexpr (!S::has_tensor_scale) {
    if (place.is_first()) {
      o.out.exponents[place.index] = static_cast<int>(largest) - E8M0::bias - raised;
    }
  }
}

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

// Plain elements as the sum of so many bfloat16 that nothing is lost.
template <class T>
__device__ __forceinline__ void expand_plain(const ExpandPlace& place, int exponent) {
  constexpr int parts = sizeof(T) == 4 ? 3 : dtype_of<T>::value == DType::float16 ? 2 : 1;
  const ExpandOperand& o = place.o;
  const T* x =
      static_cast<const T*>(o.x) + place.at.batch * o.batch_stride + place.at.row * o.row_stride;
  const auto load = [&](std::int64_t octet) {
    return load_guarded(x + octet * 8, o.columns - octet * 8, o.vector_loads);
  };
  float factor[2] = {1.0f, 1.0f};
  if constexpr (parts == 3) {
    // float32 goes further down than bfloat16 with its lower parts: rows are moved up.
    unsigned largest = 0;
    for (std::int64_t octet = place.team.rank; octet < place.octets;
         octet += place.team.threads()) {
      const RawOctet<T> raw = load(octet);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t magnitude = raw.word[i] & float32::magnitude_mask;
        if (float32::is_finite(magnitude)) largest = max(largest, magnitude);
      }
    }
    largest = place.team.max_of(largest, place.slots);
    const int field = max(static_cast<int>(float32::exponent_field(largest)), 1);
    const int up = exponent - (field - float32::bias);
    factor[0] = float32::exp2(up / 2);
    factor[1] = float32::exp2(up - up / 2);
    if (place.is_first()) o.out.exponents[place.index] = -up;
  }
  // One part: it is a copy, with all loads ahead. More: registers are dear.
  constexpr int ahead = parts == 1 ? team_loads : 1;
  const std::int64_t stride = place.team.threads();
  for (std::int64_t octet = place.team.rank; octet < place.octets; octet += ahead * stride) {
    RawOctet<T> loaded[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (octet + i * stride < place.octets) loaded[i] = load(octet + i * stride);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (octet + i * stride >= place.octets) break;
      if constexpr (parts == 1) {
        place.store(octet + i * stride, 0, loaded[i]);
      } else {
        float v[8], upper[8];
        unpack(loaded[i], v);
        if constexpr (parts == 3) {
#pragma unroll
          for (int k = 0; k < 8; ++k) v[k] = __fmul_rn(__fmul_rn(v[k], factor[0]), factor[1]);
        }
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          split_octet(v, upper);
          place.store(octet, part, pack<bfloat16>(upper));
        }
      }
    }
  }
}

inline constexpr int expand_blocks = 4;  // of a multiprocessor

// Up to two operands, in groups of rows; each thread block takes every gridDim.x-th group. One
// kernel for every kind of operand: which it is is the same question for a whole thread block. The
// largest elements of a row get an exponent of Exponent.
template <int Exponent>
__global__ void __launch_bounds__(team_threads, expand_blocks)
    expand_kernel(const __grid_constant__ ExpandParameters p) {
  __shared__ unsigned slots[2][team_threads / 32];
  if (!is_open(p.gate)) return;
  int turn = 0;
  const std::int64_t groups = p.operand[0].groups + p.operand[1].groups;
  for (std::int64_t i = blockIdx.x; i < groups; i += gridDim.x) {
    const bool second = i >= p.operand[0].groups;
    const ExpandOperand& o = p.operand[second ? 1 : 0];
    const RowTeam team(o.log2_team);
    const ExpandPlace place(o, team, slots[turn], second ? i - p.operand[0].groups : i);
    turn ^= 1;
    if (o.codes != nullptr) {
      switch (o.scheme) {
#define MXKERN_CASE(Type) \
  case Type::id: expand_codes<Type>(place, Exponent); break;
        MXKERN_FOR_EACH_SCHEME(MXKERN_CASE)
#undef MXKERN_CASE
      }
    } else {
      switch (o.dtype) {
        case DType::float32: expand_plain<float>(place, Exponent); break;
        case DType::float16: expand_plain<float16>(place, Exponent); break;
        case DType::bfloat16: expand_plain<bfloat16>(place, Exponent); break;
      }
    }
  }
}

}  // namespace mxkern::kernels
