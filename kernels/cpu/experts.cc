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
#include "kernels/cpu/operations.h"
#include "kernels/router.h"

namespace runnel {
namespace {

using cpu::divide_up;

// The number of columns that sum_experts() works on at a time.
constexpr int kBlockColumns = 256;

// The rows of products of experts: one for each choice of an input, ordered by expert, then by
// input.
class ExpertRows {
 public:
  ExpertRows(View chosen, int64_t experts) : chosen_(chosen) {
    for (int input = 0; input < chosen.rows; ++input) {
      for (int i = 0; i < chosen.cols; ++i) ++begin_[chosen.i32(input)[i] + 1];
    }
    for (int64_t e = 0; e < experts; ++e) {
      used_ += begin_[e + 1] > 0 ? 1 : 0;
      begin_[e + 1] += begin_[e];
    }
  }

  int used() const { return used_; }  // the number of experts with rows
  int begin(int64_t expert) const { return begin_[expert]; }
  int count(int64_t expert) const { return begin_[expert + 1] - begin_[expert]; }

  // Calls visit(input, rows) for the inputs [first, last), with the row of each of its choices.
  template <typename F>
  void each(int first, int last, const F& visit) const {
    std::array<int32_t, kMaxExperts + 1> next = begin_;
    std::array<int32_t, kMaxChosenExperts> rows;
    for (int input = 0; input < last; ++input) {
      for (int i = 0; i < chosen_.cols; ++i) rows[i] = next[chosen_.i32(input)[i]]++;
      if (input >= first) visit(input, rows);
    }
  }

 private:
  const View chosen_;
  std::array<int32_t, kMaxExperts + 1> begin_{};
  int used_ = 0;
};

// The same memory with a row for each choice.
View row_per_choice(View view, int chosen) {
  const int cols = view.cols / chosen;
  return {view.data, view.type, view.rows * chosen, cols, cols};
}

// out += factor * the sum of the rows of y, each multiplied by its share.
void sum_experts(View y, const int32_t* rows, const float* shares, int chosen, float factor,
                 float* out) {
  for (int begin = 0; begin < y.cols; begin += kBlockColumns) {
    const int columns = std::min(kBlockColumns, y.cols - begin);
    float sum[kBlockColumns] = {};
    for (int i = 0; i < chosen; ++i) {
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
void CpuOperations::share_experts(View chosen, std::span<const Weight> weights, int64_t nanoseconds,
                                  const F& body) {
  const int tasks = sharing_.product_tasks(nanoseconds);
  const int64_t panels = divide_up(weights[0].out, kernels_.panel);
  sharing_.share(tasks, [&](int task) {
    const ExpertRows rows(chosen, std::ssize(weights));
    const int64_t all = panels * (int64_t{chosen.rows} * chosen.cols + rows.used());
    int64_t from = all * task / tasks;
    int64_t to = all * (task + 1) / tasks;
    for (int e = 0; e < std::ssize(weights) && to > 0; ++e) {
      const int count = rows.count(e);
      if (count == 0) continue;
      const int64_t work = panels * (count + 1);
      const auto first = static_cast<int>(std::clamp<int64_t>(from, 0, work) * panels / work);
      const auto last = static_cast<int>(std::clamp<int64_t>(to, 0, work) * panels / work);
      if (first < last) body(e, rows.begin(e), count, first, last);
      from -= work;
      to -= work;
    }
  });
}

void CpuOperations::experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
                            View out) {
  check_experts(x, scores, experts, room, out);
  const int chosen = experts.chosen;
  const auto count = std::ssize(experts.up);
  const int64_t choices = int64_t{x.rows} * chosen;
  const int64_t work = (choices + 1) * experts.up[0].in * experts.up[0].out / 50;
  const View wide = row_per_choice(room.wide, chosen);
  const View hidden = row_per_choice(room.hidden, chosen);
  sharing_.split(x.rows, x.rows * (2 * count + 50 * chosen), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      choose_experts(scores.f32(row), static_cast<int>(count), chosen, room.chosen.i32(row),
                     room.shares.f32(row));
    }
  });
  const bool is_one = x.rows == 1;  // then it is the input of every choice
  if (!is_one) {
    sharing_.split(x.rows, choices * x.cols / 8, [&](int begin, int end) {
      ExpertRows(room.chosen, count).each(begin, end, [&](int row, const auto& rows) {
        for (int i = 0; i < chosen; ++i) {
          std::memcpy(wide.f32(rows[i]), x.f32(row), static_cast<size_t>(x.cols) * 4);
        }
      });
    });
  }
  share_experts(room.chosen, experts.up, 2 * work, [&](int e, int row, int rows, int f, int l) {
    const View from = is_one ? x : wide.slice(row, rows);
    multiply_panels(
        {from, &experts.gate[e], experts.activation, hidden.slice(row, rows), &experts.up[e]}, f,
        l);
  });
  share_experts(room.chosen, experts.down, work, [&](int e, int row, int rows, int f, int l) {
    const Product down = {hidden.slice(row, rows), &experts.down[e], {}, wide.slice(row, rows)};
    multiply_panels(down, f, l);
  });
  sharing_.split(x.rows, choices * x.cols / 4, [&](int begin, int end) {
    ExpertRows(room.chosen, count).each(begin, end, [&](int row, const auto& rows) {
      sum_experts(wide, rows.data(), room.shares.f32(row), chosen, experts.factor, out.f32(row));
    });
  });
}

}  // namespace runnel
