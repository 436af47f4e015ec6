// mxkern/kernels/gemm/hopper/mainloop.cuh: a warpgroup's sums of products over K.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm/hopper/config.cuh"
#include "mxkern/kernels/gemm/hopper/upcast.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/wgmma.cuh"

namespace mxkern::kernels {

// The loops are unrolled over the stages, so that all addresses are sums with constants: at 512
// clocks a step, and 200 of them for additions, there is no time for more. A stage's barrier is
// looked at before the additions of the step before and waited for after them.
template <class Config>
struct SumSm90 {
  static constexpr int stages = Config::stages;
  static constexpr int count = Config::columns / 2;  // of a thread in 64 rows
  using Sums = float[count];

  std::uint32_t base;         // the address of shared memory
  std::uint32_t left, right;  // where this warpgroup's rows and the columns start in stage 0
  std::uint32_t told;         // where this lane says that stage 0 is free, if it has to
  bool tells;
  RingPhases phases;
  bool is_full = false;  // whether the next stage has been seen full

  __device__ SumSm90(std::uint32_t shared, int warpgroup, int blocks) : base(shared) {
    left = ptx::swizzled_start(base + warpgroup * 64 * 128);
    right = ptx::swizzled_start(base + Config::left_bytes);
    const int lane = threadIdx.x % 32;
    tells = lane < blocks;
    told = ptx::address_in_block(base + Config::empty_offset, tells ? lane : 0);
  }

  __device__ __forceinline__ void multiply(Sums& sums, int steps) {
    is_full = false;
    if constexpr (!Config::promotes) {
      if constexpr (Config::clears_sums) clear(sums);
      if (steps == 0) {
        clear(sums);
      } else {
        directly(sums, steps);
      }
    } else if (steps == 0) {
      clear(sums);
    } else if constexpr (Config::has_two_places) {
      clear(sums);
      in_two_places(sums, steps);
    } else {
      in_one_place(sums, steps);
    }
  }

  // So many steps without a product, as though this warpgroup had done them.
  __device__ __forceinline__ void skip(int steps) {
    for (int first = 0; first < steps; first += stages) {
#pragma unroll
      for (int stage = 0; stage < stages; ++stage) {
        if (first + stage >= steps) break;
        wait_full(stage);
        release(stage);
      }
    }
  }

  // The left operand is decoded in registers: the codes of a step while the products of the one
  // before are under way, be they of the tile ahead. So `even` has those of the first step, and
  // those of the next tile's first step when the sums are there. Four steps have one load of
  // scales. What runs once a tile takes 5 clocks an instruction, so there is little of it, and the
  // loop has one question for four steps. Returns which rows have NaN codes.
  using Codes = typename DecodeSm90<Config>::Left;
  __device__ __forceinline__ std::uint32_t multiply_decoded(Sums& sums, int steps,
                                                            DecodeSm90<Config>& decoder,
                                                            Codes& even) {
    static_assert(stages == 4, "the stage says which of four scales");
    Codes odd;
    bool has_next = false;
    const auto ask = [&](bool has_more) {
      if (__builtin_expect(has_more, 1)) {
        decoder.block += 8;
      } else {
        has_next = decoder.find_next();
      }
      decoder.ask();
    };
    start_decoded<0, true>(sums, even);
    ask(steps > stages);
    for (bool has_before = false;; has_before = true) {
      if (steps < stages) return end_early(sums, steps, has_before, decoder, even, has_next);
      follow_decoded<0>(sums, odd, has_before, decoder);
      start_decoded<1>(sums, odd);
      follow_decoded<1>(sums, even, true, decoder);
      start_decoded<2>(sums, even);
      follow_decoded<2>(sums, odd, true, decoder);
      start_decoded<3>(sums, odd);
      wait_for<1>(sums);
      release(2);
      if (steps == stages) break;
      decoder.take_scales();
      ask(steps > 2 * stages);
      wait_full(0);
      decoder.template decode<0>(even);
      steps -= stages;
      start_decoded<0>(sums, even);
    }
    const std::uint32_t nan_rows = begin_decoded(decoder, even, has_next);
    wait_for<0>(sums);
    release(3);
    return nan_rows;
  }

  // The codes of the first step of the next tile, whose scales were asked for.
  __device__ __forceinline__ std::uint32_t begin_decoded(DecodeSm90<Config>& decoder, Codes& even,
                                                         bool has_next) {
    const std::uint32_t nan_rows = decoder.begin();
    decoder.take_scales();
    if (has_next) {
      wait_full(0);
      decoder.template decode<0>(even);
    }
    return nan_rows;
  }

 private:
  __device__ __forceinline__ void wait_full(int stage) {
    ptx::mbarrier_wait(full(stage), phases.of(stage));
    phases.advance(stage);
  }

  // Starts the products of a stage.
  template <int Stage, bool IsFirst = false>
  __device__ __forceinline__ void start_decoded(Sums& sums, const Codes& codes) {
    if constexpr (!IsFirst) ptx::wgmma_pin(sums);
    std::uint32_t from = right;
    asm volatile("" : "+r"(from));
    from += Stage * Config::stage_bytes / 16;
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t from_right = ptx::swizzled_descriptor(from + i * 2);
      if (IsFirst && i == 0) {
        ptx::wgmma_first(codes, sums, from_right);
      } else {
        ptx::wgmma(codes + i * 4, sums, from_right);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_pin(sums);
  }

  // Meanwhile decodes the next stage's codes.
  template <int Stage>
  __device__ __forceinline__ void follow_decoded(Sums& sums, Codes& next, bool has_before,
                                                 DecodeSm90<Config>& decoder) {
    wait_for<1>(sums);
    if (has_before) release(before(Stage));
    wait_full(after(Stage));
    decoder.template decode<after(Stage)>(next);
  }

  // Rare, and one step after the other: where one to three steps are left, of which the first
  // one's products are under way.
  __device__ __forceinline__ std::uint32_t end_early(Sums& sums, int steps, bool has_before,
                                                     DecodeSm90<Config>& decoder, Codes& even,
                                                     bool has_next) {
    wait_for<0>(sums);
    if (has_before) release(3);
    release(0);
    if (steps > 1) step_alone<1>(sums, decoder, even);
    if (steps > 2) step_alone<2>(sums, decoder, even);
    return begin_decoded(decoder, even, has_next);
  }

  template <int Stage>
  __device__ __forceinline__ void step_alone(Sums& sums, DecodeSm90<Config>& decoder,
                                             Codes& codes) {
    wait_full(Stage);
    decoder.template decode<Stage>(codes);
    start_decoded<Stage>(sums, codes);
    wait_for<0>(sums);
    release(Stage);
  }

  __device__ __forceinline__ std::uint32_t full(int stage) const {
    return base + Config::full_offset + stage * 8;
  }

  __device__ __forceinline__ void look_at(int stage) {
    is_full = ptx::mbarrier_test(full(stage), phases.of(stage));
  }

  // Starts the products of a stage once it is full.
  __device__ __forceinline__ void start(Sums& sums, int stage, bool adds) {
    if (!is_full) ptx::mbarrier_wait(full(stage), phases.of(stage));
    phases.advance(stage);
    if constexpr (!Config::promotes) ptx::wgmma_pin(sums);
    ptx::wgmma_fence();
    constexpr int products = 4, product_bytes = 128 / products;
#pragma unroll
    for (int i = 0; i < products; ++i) {
      const int offset = (stage * Config::stage_bytes + i * product_bytes) / 16;
      const std::uint64_t from_left = ptx::swizzled_descriptor(left + offset);
      const std::uint64_t from_right = ptx::swizzled_descriptor(right + offset);
      if constexpr (Config::promotes) {
        if (i == 0) {
          ptx::wgmma_first(typename Config::Left{}, typename Config::Right{}, sums, from_left,
                           from_right);
          continue;
        }
      }
      ptx::wgmma(typename Config::Left{}, typename Config::Right{}, sums, from_left, from_right,
                 i > 0 || adds);
    }
    ptx::wgmma_commit();
    ptx::wgmma_pin(sums);
  }

  template <int Pending>
  __device__ __forceinline__ static void wait_for(Sums& sums) {
    ptx::wgmma_wait<Pending>();
    ptx::wgmma_pin(sums);
  }

  // A warp has read the stage: tells the producers that write into it.
  __device__ __forceinline__ void release(int stage) const {
    ptx::mbarrier_arrive_remote(told + stage * 8, tells);
  }

  __device__ __forceinline__ static void clear(Sums& sums) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (Config::promotes && !Config::has_two_places) {
        // Rare there, and not to be done ahead of the question.
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sums[i]));
      } else {
        sums[i] = 0.0f;
      }
    }
  }

  __device__ __forceinline__ static void add(Sums& sums, const Sums& more) {
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] += more[i];
  }

  __device__ static constexpr int before(int stage) { return (stage + stages - 1) % stages; }
  __device__ static constexpr int after(int stage) { return (stage + 1) % stages; }

  // The tensor cores accumulate; a stage is free when the next one's products are under way.
  __device__ __forceinline__ void directly(Sums& sums, int steps) {
    for (int first = 0; first < steps; first += stages) {
#pragma unroll
      for (int stage = 0; stage < stages; ++stage) {
        if (first + stage >= steps) break;
        start(sums, stage, first + stage > 0);
        look_at(after(stage));
        wait_for<1>(sums);
        if (first + stage > 0) release(before(stage));
      }
    }
    wait_for<0>(sums);
    if (steps > 0) release((steps - 1) % stages);
  }

  // While the products of one step are under way, those of the step before are added.
  __device__ __forceinline__ void in_two_places(Sums& sums, int steps) {
    static_assert(stages % 2 == 0, "the place of a stage's products is known when it is compiled");
    Sums even, odd;
    start(even, 0, false);
    look_at(1);
    for (int step = 1;; step += stages) {
#pragma unroll
      for (int stage = 0; stage < stages; stage += 2) {
        if (!follow(sums, even, odd, stage, step + stage < steps)) return;
        if (!follow(sums, odd, even, stage + 1, step + stage + 1 < steps)) return;
      }
    }
  }

  // Adds the products of a stage, `done`, after the start of those of the next one, if there is
  // one.
  __device__ __forceinline__ bool follow(Sums& sums, Sums& done, Sums& under_way, int stage,
                                         bool has_next) {
    if (!has_next) {
      wait_for<0>(done);
      release(stage);
      add(sums, done);
      return false;
    }
    start(under_way, after(stage), false);
    look_at(after(after(stage)));
    wait_for<1>(done);
    release(stage);
    add(sums, done);
    return true;
  }

  // Where the sums leave room for the products of a step, or of half of its columns: while this
  // warpgroup adds these, products of the other one are under way. Both together keep the tensor
  // cores busy only if little lies between products and additions, so what else is to be asked is
  // asked while products are under way.
  __device__ __forceinline__ void in_one_place(Sums& sums, int steps) {
    static_assert(stages == 4);
    wait_full(0);
    if (multiply_step<0, true>(sums, steps == 1)) return;
    while (true) {
      if (multiply_step<1>(sums, steps == 2)) return;
      if (multiply_step<2>(sums, steps == 3)) return;
      if (multiply_step<3>(sums, steps == 4)) return;
      if (multiply_step<0>(sums, steps == 5)) return;
      steps -= stages;
    }
  }

  // Of a full stage; behind it the next one is full, unless this was the last step.
  template <int Stage, bool IsFirst = false>
  __device__ __forceinline__ bool multiply_step(Sums& sums, bool is_last_step) {
    constexpr int times = Config::has_halves ? 2 : 1;
    constexpr int part_columns = Config::columns / times, part_count = count / times;
#pragma unroll
    for (int part = 0; part < times; ++part) {
      const bool is_last = part == times - 1;
      float products[part_count];
      // Worked out where they are needed: kept for all stages, descriptors take registers that
      // these products have.
      std::uint32_t from_left = left, from_right = right;
      asm volatile("" : "+r"(from_left), "+r"(from_right));
      from_left += Stage * Config::stage_bytes / 16;
      from_right += (Stage * Config::stage_bytes + part * part_columns * 128) / 16;
      ptx::wgmma_fence();
      ptx::wgmma_first(typename Config::Left{}, typename Config::Right{}, products,
                       ptx::swizzled_descriptor(from_left), ptx::swizzled_descriptor(from_right));
#pragma unroll
      for (int i = 1; i < 4; ++i) {
        ptx::wgmma(typename Config::Left{}, typename Config::Right{}, products,
                   ptx::swizzled_descriptor(from_left + i * 2),
                   ptx::swizzled_descriptor(from_right + i * 2), 1);
      }
      ptx::wgmma_commit();
      ptx::wgmma_pin(products);
      if (is_last && !is_last_step) wait_full(after(Stage));
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(products);
      if (is_last) release(Stage);
#pragma unroll
      for (int i = 0; i < part_count; ++i) {
        float& sum = sums[part * part_count + i];
        sum = (IsFirst ? 0.0f : sum) + products[i];
      }
    }
    return is_last_step;
  }
};

}  // namespace mxkern::kernels
