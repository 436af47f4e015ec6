// cpu/runtime/parallel.cc: the worker threads of the CPU backend. They live as long as the process:
// starting threads for every call would cost more than many calls.
#include "cpu/runtime/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu/runtime/cache.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/core/math.h"
#include "mxkern/threads.h"

namespace mxkern::cpu {
namespace {

// One piece of work, shared by the caller and the workers that join it. Each has a part of its own,
// the same one at each call with as many threads, so that it finds in its caches, and in the memory
// of its processor, what it left there. Whoever has finished helps the others.
class Job {
 public:
  Job(detail::RangeFunction function, void* context, std::int64_t count, std::int64_t chunk,
      int threads)
      : function_(function), context_(context), count_(count), chunk_(chunk) {
    const std::int64_t chunks = ceil_div(count, chunk);
    parts_ = static_cast<int>(std::min<std::int64_t>({threads, most_parts, chunks}));
    part_size_ = ceil_div(chunks, std::int64_t{parts_}) * chunk;
    for (int i = 0; i < parts_; ++i) next_[i].of_part.store(i * part_size_);
  }

  void run(int thread) {
    const FloatEnvironment environment;
    try {
      for (int i = 0; i < parts_; ++i) run_part((thread + i) % parts_);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      for (int i = 0; i < parts_; ++i) next_[i].of_part.store(count_);
    }
  }

  const std::exception_ptr& error() const { return error_; }

 private:
  static constexpr int most_parts = 64;

  struct alignas(cache_line) Next {
    std::atomic<std::int64_t> of_part{0};
  };

  void run_part(int part) {
    const std::int64_t end = std::min((part + 1) * part_size_, count_);
    for (;;) {
      const std::int64_t begin = next_[part].of_part.fetch_add(chunk_);
      if (begin >= end) return;
      function_(context_, begin, std::min(begin + chunk_, end));
    }
  }

  detail::RangeFunction function_;
  void* context_;
  std::int64_t count_;
  std::int64_t chunk_;
  std::int64_t part_size_;
  int parts_;
  Next next_[most_parts];
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

// Looks again and again whether something has come true, for as long as waking a thread takes:
// products of a model follow one another faster than that.
template <class Condition>
bool spin_until(Condition&& is_true) {
  constexpr std::chrono::microseconds longest{30};
  constexpr int looks = 64;  // between two looks at the clock
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < looks; ++i) {
      if (is_true()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (std::chrono::steady_clock::now() - start < longest);
  return false;
}

// Threads that start meanwhile leave signals to those of the program, which may wait for them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

class Workers {
 public:
  // Starts threads until there are as many, or as many as there can be: a system that has no more
  // threads leaves more to each, or to the caller alone, and is not asked again.
  void grow(int helpers) {
    if (helpers <= asked_) return;
    const SignalsBlocked blocked;
    try {
      threads_.reserve(static_cast<std::size_t>(helpers));
      for (; asked_ < helpers; ++asked_) {
        threads_.emplace_back([this, number = asked_ + 1] { serve(number); });
      }
    } catch (const std::exception&) {
      asked_ = helpers;
    }
  }

  // At most so many workers join.
  void run(Job& job, int helpers) {
    bool are_asleep = false;
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      seats_ = helpers;
      generation_.fetch_add(1);
      are_asleep = asleep_ > 0;
    }
    if (are_asleep) start_.notify_all();
    job.run(0);
    // Nothing is left to take: workers that wake up from now on are too late, and are not waited
    // for.
    {
      const std::lock_guard lock(mutex_);
      job_ = nullptr;
      if (active_.load() == 0) return;
    }
    spin_until([this] { return active_.load() == 0; });
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return active_.load() == 0; });
  }

 private:
  // number: from 1 up; the caller is 0.
  void serve(int number) {
    std::uint64_t seen = 0;
    const auto has_news = [&] { return generation_.load() != seen; };
    for (;;) {
      Job* job;
      if (seen != 0) spin_until(has_news);  // the next call may be close behind the last one
      {
        std::unique_lock lock(mutex_);
        ++asleep_;
        start_.wait(lock, has_news);
        --asleep_;
        seen = generation_.load();
        job = job_;
        if (job == nullptr || seats_ == 0) continue;
        --seats_;
        active_.fetch_add(1);
      }
      job->run(number);
      const std::lock_guard lock(mutex_);
      if (active_.fetch_sub(1) == 1) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  int seats_ = 0;
  std::atomic<int> active_{0};
  int asleep_ = 0;
  int asked_ = 0;
  std::vector<std::thread> threads_;
};

// Workers are never destroyed: they sleep until the process ends. A forked child has none of its
// parent's threads, so it forgets them and starts its own.
std::atomic<Workers*> workers{nullptr};
std::atomic<bool> busy{false};

void forget_workers() {
  workers.store(nullptr);
  busy.store(false);
}

Workers& get_workers(int helpers) {
  Workers* current = workers.load();
  if (current == nullptr) {
    static const int registered = pthread_atfork(nullptr, nullptr, forget_workers);
    static_cast<void>(registered);
    current = new Workers;
    workers.store(current);
  }
  current->grow(helpers);
  return *current;
}

}  // namespace

void detail::parallel_for(std::int64_t count, std::int64_t grain, int most_at_once,
                          RangeFunction function, void* context) {
  if (count <= 0) return;
  const int threads = std::min(num_threads(), most_at_once);
  if (count <= grain || threads == 1 || busy.exchange(true)) {
    const FloatEnvironment environment;
    return function(context, 0, count);
  }
  struct Release {
    ~Release() { busy.store(false); }
  } release;
  // Several chunks a thread even out cores of unequal speed.
  Job job(function, context, count, std::max(grain, count / (threads * 8) + 1), threads);
  get_workers(threads - 1).run(job, threads - 1);
  if (job.error()) std::rethrow_exception(job.error());
}

}  // namespace mxkern::cpu
