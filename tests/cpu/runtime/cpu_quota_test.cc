// tests/cpu/runtime/cpu_quota_test.cc: CPU quotas of control groups, read from made-up folders.
#include "cpu/runtime/cpu_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mxkern::cpu {
namespace {

TEST(CpuQuota, NumbersAreRoundedUp) {
  EXPECT_EQ(quota_of("200000 100000\n"), 2);
  EXPECT_EQ(quota_of("200001 100000"), 3);
  EXPECT_EQ(quota_of("150000 100000"), 2);
  EXPECT_EQ(quota_of("1000 100000"), 1);
  EXPECT_EQ(quota_of("400000", "100000\n"), 4);
  EXPECT_EQ(quota_of("9223372036854775807 1"), no_quota);
}

TEST(CpuQuota, WhatIsNoQuota) {
  for (const char* text : {"", "max 100000", "max", "-1 100000", "0 100000", "100000", "100000 0",
                           "100000 -5", "99999999999999999999 100000", "text", " "}) {
    EXPECT_EQ(quota_of(text), no_quota) << '"' << text << '"';
  }
  EXPECT_EQ(quota_of("-1", "100000"), no_quota);
  EXPECT_EQ(quota_of("", ""), no_quota);
}

// A folder of control groups, with files as a system would have them.
class CpuQuotaFolder : public testing::Test {
 protected:
  CpuQuotaFolder() {
    std::string name = testing::TempDir() + "mxkern_cpu_quota_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~CpuQuotaFolder() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  int quota(const char* self) const { return smallest_quota(self, root_); }

  std::string root_;
};

TEST_F(CpuQuotaFolder, Version2TakesTheSmallestUpToTheRoot) {
  write("/a/b/c/cpu.max", "max 100000");
  EXPECT_EQ(quota("0::/a/b/c\n"), no_quota);
  write("/a/b/cpu.max", "800000 100000");
  write("/a/cpu.max", "300000 100000");
  write("/a/b/other/cpu.max", "100000 100000");  // of other processes
  EXPECT_EQ(quota("0::/a/b/c\n"), 3);
  write("/a/b/c/cpu.max", "50000 100000");
  EXPECT_EQ(quota("0::/a/b/c\n"), 1);
  EXPECT_EQ(quota("0::/a/b"), 3);
  EXPECT_EQ(quota("0::/\n"), no_quota);
}

// A container sees its own group as the root, whatever its name is outside.
TEST_F(CpuQuotaFolder, TheRootCountsWhereTheGroupIsNotThere) {
  write("/cpu.max", "250000 100000");
  EXPECT_EQ(quota("0::/\n"), 3);
  EXPECT_EQ(quota("0::/docker/0123\n"), 3);
  EXPECT_EQ(quota("0::/../outside\n"), 3);
}

TEST_F(CpuQuotaFolder, Version1BesideVersion2) {
  constexpr const char* self =
      "12:cpuset:/a\n4:cpu,cpuacct:/a/b\n3:memory:/a\n1:name=systemd:/c:d\n0::/a\n";
  write("/cpuset/a/cpu.cfs_quota_us", "100000");  // of another hierarchy
  write("/cpuset/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(self), no_quota);
  write("/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1");
  write("/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(self), no_quota);
  write("/cpu,cpuacct/a/cpu.cfs_quota_us", "500000");
  write("/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(self), 5);
  write("/cpu/cpu.cfs_quota_us", "120000");
  write("/cpu/cpu.cfs_period_us", "60000");
  EXPECT_EQ(quota(self), 2);
  write("/unified/a/cpu.max", "10000 100000");
  EXPECT_EQ(quota(self), 1);
}

TEST_F(CpuQuotaFolder, WhatSaysNothing) {
  write("/cpu.max", "100000 100000");
  for (const char* self : {"", "\n\n", "0", "0:", "0::", "::", "4:memory:/", "4:cpu:relative"}) {
    EXPECT_EQ(quota(self), no_quota) << '"' << self << '"';
  }
  EXPECT_EQ(smallest_quota("0::/", root_ + "/nowhere"), no_quota);
}

TEST(CpuQuota, OfThisProcess) { EXPECT_GE(cpu_quota(), 1); }

}  // namespace
}  // namespace mxkern::cpu
