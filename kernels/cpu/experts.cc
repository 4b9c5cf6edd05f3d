// Mixtures of experts. Threads share the panels of all experts that any input uses.
//
// Which experts these are is known only when the tasks run. So the number of phases, and of tasks
// in each, depends on shapes alone, and only tasks read which experts were chosen (phases.h: a
// thread that is late must make the same calls).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/limits.h"
#include "kernels/checks.h"
#include "kernels/choose_experts.h"
#include "kernels/cpu/operations.h"

namespace runnel {
namespace {

using cpu::divide_up;

// The number of columns that sum_experts() works on at a time.
constexpr int kBlockColumns = 256;

// The rows of products of experts: one for each expert that an input uses, ordered by expert, then
// by input.
class ExpertRows {
 public:
  ExpertRows(View used, int64_t experts) : used_(used) {
    for (int input = 0; input < used.rows; ++input) {
      for (int i = 0; i < used.cols; ++i) ++begin_[used.i32(input)[i] + 1];
    }
    for (int64_t e = 0; e < experts; ++e) begin_[e + 1] += begin_[e];
  }

  int begin(int64_t expert) const { return begin_[expert]; }
  int count(int64_t expert) const { return begin_[expert + 1] - begin_[expert]; }

  // Calls visit(input, rows) for the inputs [first, last), with the row of each of its experts.
  template <typename F>
  void each(int first, int last, const F& visit) const {
    Begins next = begin_;
    std::array<int32_t, kMaxChosenExperts + 1> rows;
    for (int input = 0; input < last; ++input) {
      for (int i = 0; i < used_.cols; ++i) rows[i] = next[used_.i32(input)[i]]++;
      if (input >= first) visit(input, rows);
    }
  }

 private:
  using Begins = std::array<int32_t, kMaxExperts + 2>;  // with a shared expert

  const View used_;
  Begins begin_{};
};

// The same memory with each row divided into `rows` rows.
View divided(View view, int rows) {
  const int cols = view.cols / rows;
  return {view.data, view.type, view.rows * rows, cols, cols};
}

// out += factor * the sum of the rows of y, each multiplied by its share.
void sum_experts(View y, const int32_t* rows, const float* shares, int count, float factor,
                 float* out) {
  for (int begin = 0; begin < y.cols; begin += kBlockColumns) {
    const int columns = std::min(kBlockColumns, y.cols - begin);
    float sum[kBlockColumns] = {};
    for (int i = 0; i < count; ++i) {
      const float* const from = y.f32(rows[i]) + begin;
      for (int c = 0; c < columns; ++c) sum[c] += shares[i] * from[c];
    }
    for (int c = 0; c < columns; ++c) out[begin + c] += factor * sum[c];
  }
}

}  // namespace

// Calls body(expert, first row, rows, first panel, last panel) for all panels of all experts with
// rows. `weights` has a weight of each expert.
template <typename F>
void CpuOperations::share_experts(View used, std::span<const Weight> weights, int64_t nanoseconds,
                                  const F& body) {
  const auto panels = [&](int e) { return int64_t{divide_up(weights[e].out, kernels_.panel)}; };
  const int tasks = sharing_.product_tasks(nanoseconds);
  sharing_.share(tasks, [&](int task) {
    const ExpertRows rows(used, std::ssize(weights));
    const auto work = [&](int e) {
      return rows.count(e) > 0 ? panels(e) * (rows.count(e) + 1) : 0;
    };
    int64_t all = 0;
    for (int e = 0; e < std::ssize(weights); ++e) all += work(e);
    int64_t from = all * task / tasks;
    int64_t to = all * (task + 1) / tasks;
    for (int e = 0; e < std::ssize(weights) && to > 0; ++e) {
      if (work(e) == 0) continue;
      const auto panel = [&](int64_t at) {
        return static_cast<int>(std::clamp<int64_t>(at, 0, work(e)) * panels(e) / work(e));
      };
      if (panel(from) < panel(to)) {
        body(e, rows.begin(e), rows.count(e), panel(from), panel(to));
      }
      from -= work(e);
      to -= work(e);
    }
  });
}

void CpuOperations::experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
                            View out) {
  check_experts(x, scores, experts, room, out);
  const int used = experts.router.used();
  const auto count = static_cast<int>(std::ssize(experts.up));
  const int64_t all = int64_t{x.rows} * used;
  const int64_t work = (all + 1) * experts.up[0].in * experts.up[0].out / 50;
  const View wide = divided(room.wide, used);
  const View hidden = divided(room.hidden, used);
  sharing_.split(x.rows, int64_t{x.rows} * (2 * count + 50 * used), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      choose_experts(experts.router, scores.f32(row), count, room.used.i32(row),
                     room.shares.f32(row));
    }
  });
  const bool is_one = x.rows == 1;  // then all experts have the same input
  if (!is_one) {
    sharing_.split(x.rows, all * x.cols / 8, [&](int begin, int end) {
      ExpertRows(room.used, count).each(begin, end, [&](int row, const auto& rows) {
        for (int i = 0; i < used; ++i) {
          std::memcpy(wide.f32(rows[i]), x.f32(row), static_cast<size_t>(x.cols) * 4);
        }
      });
    });
  }
  const bool is_gated = !experts.gate.empty();
  const auto hidden_of = [&](int e, int row, int rows) {
    return hidden.slice(row, rows).columns(0, experts.up[e].out);
  };
  share_experts(room.used, experts.up, 2 * work, [&](int e, int row, int rows, int f, int l) {
    const View from = is_one ? x : wide.slice(row, rows);
    const Weight* const up = &experts.up[e];
    const Weight* const gate = is_gated ? &experts.gate[e] : nullptr;
    multiply_panels({from, is_gated ? gate : up, experts.activation, hidden_of(e, row, rows),
                     is_gated ? up : nullptr},
                    f, l);
  });
  share_experts(room.used, experts.down, work, [&](int e, int row, int rows, int f, int l) {
    multiply_panels({hidden_of(e, row, rows), &experts.down[e], {}, wide.slice(row, rows)}, f, l);
  });
  sharing_.split(x.rows, all * x.cols / 4, [&](int begin, int end) {
    ExpertRows(room.used, count).each(begin, end, [&](int row, const auto& rows) {
      sum_experts(wide, rows.data(), room.shares.f32(row), used, experts.factor, out.f32(row));
    });
  });
}

}  // namespace runnel
