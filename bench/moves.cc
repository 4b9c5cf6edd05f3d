// Measures how long the C++ client takes to fork, export and import states, and how long a copy of
// the same number of bytes takes in memory.
//
//   bench_moves ADDRESS SESSION STATE_BYTES SECONDS
//
// Prints JSON: medians, in seconds. Each measurement takes SECONDS. SESSION has a state of
// STATE_BYTES, and the server has room for kStates more of that size.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "client/client.h"

namespace runnel {
namespace {

constexpr int kStates = 16;  // in a round
constexpr int64_t kMostFile = int64_t{1} << 30;
constexpr Seconds kTimeout{60};

void need(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_moves: %s\n", call_error(status).c_str());
  std::exit(1);
}

std::string name_of(int state) { return "state-" + std::to_string(state); }

double seconds_of(const std::function<void()>& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return Seconds(std::chrono::steady_clock::now() - begun).count();
}

// The median time of `work`, repeated for `seconds`, at least five times. `undo` is not timed.
double median_time(double seconds, const std::function<void()>& work,
                   const std::function<void()>& undo) {
  std::vector<double> times;
  const auto until = std::chrono::steady_clock::now() + Seconds(seconds);
  while (times.size() < 5 || std::chrono::steady_clock::now() < until) {
    times.push_back(seconds_of(work));
    undo();
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Makes a call for each state, `at_once` of them at the same time.
void call_all(int at_once, const std::function<void(int state, std::string& file)>& call) {
  std::atomic<int> next = 0;
  const auto take = [&] {
    std::string file;  // reused
    for (int state = next++; state < kStates; state = next++) call(state, file);
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < at_once; ++i) others.emplace_back(take);
  take();
}

class Moves {
 public:
  Moves(Client& client, std::string session, double seconds)
      : client_(client), session_(std::move(session)), seconds_(seconds) {}

  OrderedJson run(int64_t state_bytes) {
    OrderedJson found;
    found["copy"] = copy(static_cast<size_t>(state_bytes));
    for (const int children : {1, kStates}) {
      const auto make = [&] { fork(children); };
      const auto remove = [&] { drop(children); };
      found["fork"][std::to_string(children)] = median_time(seconds_, make, remove);
    }
    fork(kStates);
    std::string file;
    save(0, file);
    found["file_bytes"] = file.size();
    for (const int at_once : {1, 4}) {
      const double all = median_time(
          seconds_, [&] { call_all(at_once, [&](int i, std::string& file) { save(i, file); }); },
          [] {});
      found["export"][std::to_string(at_once)] = all / kStates;
    }
    drop(kStates);
    for (const int at_once : {1, 4}) {
      const double all = median_time(
          seconds_, [&] { call_all(at_once, [&](int i, std::string&) { load(i, file); }); },
          [&] { drop(kStates); });
      found["import"][std::to_string(at_once)] = all / kStates;
    }
    return found;
  }

 private:
  // Copies from one place to several in turn, as a fork does. Forks run in between, so that the
  // caches are in the same state as before a fork.
  double copy(size_t bytes) {
    std::vector<char> from(bytes, 1);
    std::vector<std::vector<char>> to(kStates, from);
    const auto copy_all = [&] {
      for (std::vector<char>& one : to) std::memcpy(one.data(), from.data(), bytes);
    };
    const auto between = [&] {
      fork(kStates);
      drop(kStates);
    };
    return median_time(seconds_, copy_all, between) / kStates;
  }

  void fork(int children) {
    v1::ForkSessionRequest request;
    request.set_id(session_);
    for (int i = 0; i < children; ++i) request.add_children(name_of(i));
    v1::ForkSessionResponse made;
    need(client_.fork_session(request, made));
  }

  void drop(int count) {
    for (int i = 0; i < count; ++i) need(client_.delete_session("", name_of(i)));
  }

  void save(int state, std::string& file) {
    v1::ExportSessionRequest request;
    request.set_id(name_of(state));
    file.clear();
    need(client_.export_session(request, kMostFile, file));
  }

  void load(int state, const std::string& file) {
    v1::ImportTarget target;
    target.set_id(name_of(state));
    v1::Session made;
    need(client_.import_session(target, file, made));
  }

  Client& client_;
  const std::string session_;
  const double seconds_;
};

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: bench_moves ADDRESS SESSION STATE_BYTES SECONDS\n", stderr);
    return 2;
  }
  runnel::Client client({.address = argv[1]}, runnel::kTimeout);
  runnel::need(client.connect(runnel::kTimeout));
  runnel::Moves moves(client, argv[2], std::strtod(argv[4], nullptr));
  std::puts(runnel::json_text(moves.run(std::strtoll(argv[3], nullptr, 10)), 1).c_str());
  return 0;
}
