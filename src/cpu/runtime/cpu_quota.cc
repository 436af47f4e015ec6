// cpu/runtime/cpu_quota.cc: CPU quotas of control groups, of version 2 (cpu.max) and 1 (cpu.cfs_*).
#include "cpu/runtime/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>

namespace mxkern::cpu {
namespace {

// Cuts `text` at the separator: returns what is ahead of it, and leaves the rest.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view first = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return first;
}

// 0 for what is no number.
std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Empty where there is no such file.
std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

int quota_of_folder(const std::string& folder) {
  return std::min(quota_of(first_line(folder + "/cpu.max")),
                  quota_of(first_line(folder + "/cpu.cfs_quota_us"),
                           first_line(folder + "/cpu.cfs_period_us")));
}

// From the group up to the root of its hierarchy.
int smallest_quota_above(const std::string& hierarchy, std::string_view group) {
  int smallest = quota_of_folder(hierarchy);
  for (; group.size() > 1; group = group.substr(0, std::min(group.rfind('/'), group.size()))) {
    smallest = std::min(smallest, quota_of_folder(hierarchy + std::string(group)));
  }
  return smallest;
}

bool has_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    if (cut(controllers, ',') == "cpu") return true;
  }
  return false;
}

}  // namespace

int quota_of(std::string_view quota, std::string_view period) {
  const std::int64_t time = number_of(quota), of = number_of(period);
  if (time <= 0 || of <= 0) return no_quota;
  return static_cast<int>(std::min<std::int64_t>((time - 1) / of + 1, no_quota));
}

int quota_of(std::string_view cpu_max) {
  const std::string_view quota = cut(cpu_max, ' ');
  return quota_of(quota, cpu_max);
}

int smallest_quota(std::string_view self, const std::string& root) {
  int smallest = no_quota;
  while (!self.empty()) {
    std::string_view group = cut(self, '\n');  // number:controllers:path
    cut(group, ':');
    const std::string_view controllers = cut(group, ':');
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) {  // version 2, beside version 1 in a folder of its own
      smallest = std::min({smallest, smallest_quota_above(root, group),
                           smallest_quota_above(root + "/unified", group)});
    } else if (has_cpu(controllers)) {
      smallest = std::min({smallest, smallest_quota_above(root + "/cpu", group),
                           smallest_quota_above(root + "/" + std::string(controllers), group)});
    }
  }
  return smallest;
}

int cpu_quota() {
  std::ifstream file("/proc/self/cgroup");
  const std::string self{std::istreambuf_iterator<char>(file), {}};
  return smallest_quota(self, "/sys/fs/cgroup");
}

}  // namespace mxkern::cpu
