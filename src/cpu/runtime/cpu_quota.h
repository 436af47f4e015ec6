// cpu/runtime/cpu_quota.h: how many processors' time the control groups of this process let it use.
#pragma once

#include <limits>
#include <string>
#include <string_view>

namespace mxkern::cpu {

inline constexpr int no_quota = std::numeric_limits<int>::max();

// Processors, rounded up, of what cpu.cfs_quota_us and cpu.cfs_period_us hold, or of the line that
// cpu.max has of both. no_quota for "max", -1 and whatever is not understood.
int quota_of(std::string_view quota, std::string_view period);
int quota_of(std::string_view cpu_max);

// The smallest quota of the groups that `self` names, the contents of /proc/self/cgroup, and of all
// groups above them. root: where control groups are mounted. Groups that cannot be read say
// nothing: in a container only the root may be there.
int smallest_quota(std::string_view self, const std::string& root);

// That of this process.
int cpu_quota();

}  // namespace mxkern::cpu
