// tests/ops/info_test.cc: what the library says of itself.
#include "mxkern/info.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cpu/runtime/instruction_set.h"
#include "mxkern/threads.h"
#include "plan/blackwell.h"

namespace mxkern {
namespace {

TEST(Info, DescribesThisBuildAndMachine) {
  const Info found = info();
  EXPECT_EQ(found.version, MXKERN_VERSION);
  EXPECT_EQ(found.version, version());
  EXPECT_EQ(found.built_with_cuda, built_with_cuda());
  // As in "gcc 12.2, x86_64, release".
  EXPECT_TRUE(found.build.starts_with("gcc ") || found.build.starts_with("clang ")) << found.build;
  EXPECT_TRUE(found.build.ends_with(", release") || found.build.ends_with(", debug"))
      << found.build;
  EXPECT_EQ(std::count(found.build.begin(), found.build.end(), ','), 2) << found.build;
  EXPECT_EQ(found.instruction_set, cpu::name_of(cpu::best_instruction_set()));
  EXPECT_TRUE(cpu::is_available(cpu::best_instruction_set()));
  EXPECT_EQ(found.threads, num_threads());
  EXPECT_GE(found.threads, 1);
#if !defined(MXKERN_HAS_CUDA)
  EXPECT_FALSE(found.built_with_cuda);
  EXPECT_TRUE(found.devices.empty());
#endif
  EXPECT_FALSE(found.cuda.empty());
  const bool has_kernels = cuda::has_blackwell_kernels(cuda::Blackwell::sm100) ||
                           cuda::has_blackwell_kernels(cuda::Blackwell::sm120);
  EXPECT_EQ(found.blackwell.rfind("CUTLASS 4", 0) == 0, has_kernels) << found.blackwell;
  EXPECT_EQ(found.blackwell.find("never executed") != std::string::npos, has_kernels);
}

}  // namespace
}  // namespace mxkern
