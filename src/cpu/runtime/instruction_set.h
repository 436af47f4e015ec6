// cpu/runtime/instruction_set.h: which of the compiled instruction sets this machine runs.
#pragma once

#include <cstdint>

namespace mxkern::cpu {

enum class InstructionSet : std::uint8_t { baseline, avx2, avx512 };

inline constexpr InstructionSet all_instruction_sets[] = {
    InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512};

const char* name_of(InstructionSet set);

// Compiled in and supported by the processor and the operating system.
bool is_available(InstructionSet set);

// The widest that is available.
InstructionSet best_instruction_set();

// Dot products of bfloat16 pairs in AVX-512, and in AMX tiles. The first call for AMX asks the
// operating system for the tile state.
bool has_avx512_bf16();
bool has_amx_bf16();

}  // namespace mxkern::cpu
