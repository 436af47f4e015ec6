// fuzz/random_main.cc: feeds a fuzz target random bytes, where there is no libFuzzer.
// usage: fuzz_TARGET [-max_total_time=SECONDS]. Reproducible: input i comes from seed i.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  double seconds = 10;
  const char* const option = "-max_total_time=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], option, std::strlen(option)) == 0) {
      seconds = std::atof(argv[i] + std::strlen(option));
    }
  }
  const auto start = std::chrono::steady_clock::now();
  unsigned runs = 0;
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
         seconds) {
    std::mt19937 random(runs++);
    std::vector<std::uint8_t> bytes(random() % 4096);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("Done %u runs in %g second(s)\n", runs, seconds);
}
