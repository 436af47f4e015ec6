// tests/cpu/runtime/instruction_set_test.cc: what is detected is what the build has and Linux says
// of the processor.
#include "cpu/runtime/instruction_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace mxkern::cpu {
namespace {

#if defined(MXKERN_HAS_avx2)
constexpr bool builds_avx2 = true;
#else
constexpr bool builds_avx2 = false;
#endif
#if defined(MXKERN_HAS_avx512)
constexpr bool builds_avx512 = true;
#else
constexpr bool builds_avx512 = false;
#endif

std::set<std::string> processor_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(InstructionSetTest, FollowsTheBuildAndTheProcessor) {
  const std::set<std::string> flags = processor_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  const auto has = [&](std::initializer_list<const char*> wanted) {
    return std::all_of(wanted.begin(), wanted.end(),
                       [&](const char* flag) { return flags.contains(flag); });
  };
  const bool avx2 = builds_avx2 && has({"avx2", "fma", "f16c", "bmi1", "bmi2"});
  const bool avx512 = builds_avx512 && has({"avx2", "fma", "f16c", "bmi1", "bmi2", "avx512f",
                                            "avx512bw", "avx512vl", "avx512dq", "avx512vbmi"});
  EXPECT_TRUE(is_available(InstructionSet::baseline));
  EXPECT_EQ(is_available(InstructionSet::avx2), avx2);
  EXPECT_EQ(is_available(InstructionSet::avx512), avx512);
  EXPECT_EQ(best_instruction_set(), avx512 ? InstructionSet::avx512
                                    : avx2 ? InstructionSet::avx2
                                           : InstructionSet::baseline);
  EXPECT_EQ(has_avx512_bf16(), avx512 && flags.contains("avx512_bf16"));
  EXPECT_EQ(has_amx_bf16(),
            has_avx512_bf16() && flags.contains("amx_bf16") && flags.contains("amx_tile"));
}

}  // namespace
}  // namespace mxkern::cpu
