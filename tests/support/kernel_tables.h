// tests/support/kernel_tables.h: the instruction sets that tests can run on this machine.
#pragma once

#include <vector>

#include "cpu/kernel_table.h"

namespace mxkern::test {

inline std::vector<cpu::InstructionSet> available_instruction_sets() {
  std::vector<cpu::InstructionSet> sets;
  for (const cpu::InstructionSet set : cpu::all_instruction_sets) {
    if (cpu::is_available(set)) sets.push_back(set);
  }
  return sets;
}

}  // namespace mxkern::test
