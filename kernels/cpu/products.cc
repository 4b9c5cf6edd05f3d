// Products of CpuOperations with weights.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/operations.h"

namespace runnel {
namespace {

using cpu::divide_up;

// The maximum number of matmuls that are shared at once.
constexpr int kMostProducts = 8;

int64_t padded_to(int multiple, int count) {
  return int64_t{divide_up(count, multiple)} * multiple;
}

// Rows [first, first + count) of an optional matrix.
View rows_of(View view, int first, int count) {
  return view.data == nullptr ? view : view.slice(first, count);
}

// The time in nanoseconds, at 50 multiply-adds per nanosecond, half of that for a single row.
int64_t work_of(const Product& product) {
  const int64_t one = int64_t{product.x.rows + 1} * product.weight->in * product.weight->out / 50;
  return product.up == nullptr ? one : 2 * one;
}

// The tasks in which threads share the panels of products. A task is a range of panels, of one
// product or of several consecutive ones. Long ranges load weights faster, and short last ranges
// let threads end together. So tasks are equal if there is one for each thread. Otherwise they
// shrink: of n tasks, the first has about 2 / n of the work and the last 1 / n^2.
class PanelTasks {
 public:
  PanelTasks(std::span<const Product> products, int panel, int count, bool equal)
      : count_(count), equal_(equal) {
    for (const Product& one : products) {
      Share& share = shares_[products_++];
      share.panels = divide_up(one.weight->out, panel);
      share.work = int64_t{share.panels} * one.weight->in * (one.up == nullptr ? 1 : 2);
      total_ += share.work;
    }
  }

  int count() const { return count_; }
  // Calls body(product, first, last) for the panels [first, last) of each product in the task.
  template <typename F>
  void run(int task, const F& body) const {
    int64_t from = begin(task);
    int64_t to = begin(task + 1);
    for (size_t i = 0; i < products_; ++i) {
      const int first = shares_[i].panels_in(from);
      const int last = shares_[i].panels_in(to);
      if (first < last) body(i, first, last);
      from -= shares_[i].work;
      to -= shares_[i].work;
    }
  }

 private:
  struct Share {
    int panels = 0;
    int64_t work = 0;  // multiply-adds per row, with columns padded to whole panels
    int panels_in(int64_t some) const {
      return static_cast<int>(std::clamp<int64_t>(some, 0, work) * panels / work);
    }
  };

  // The work before a task.
  int64_t begin(int task) const {
    const double part = static_cast<double>(task) / count_;
    return std::llround(static_cast<double>(total_) * (equal_ ? part : part * (2 - part)));
  }

  std::array<Share, kMostProducts> shares_;
  size_t products_ = 0;
  int64_t total_ = 0;
  const int count_;
  const bool equal_;
};

}  // namespace

void CpuOperations::make_room_for(const HostTensor& weight, Precision precision) {
  // Rounded inputs, followed by a panel in bf16.
  const int64_t rounded =
      padded_to(cpu::kStepInputs, weight.cols) *
      (kernels_.block_rows + (precision == Precision::kInt8 ? kernels_.panel / 2 : 0));
  grow_scratch(std::max(precision == Precision::kFp32 ? 0 : rounded, int64_t{2} * weight.rows));
}

void CpuOperations::matmuls(std::span<const Product> products) {
  if (products.empty()) return;
  if (products.size() > kMostProducts) {
    matmuls(products.first(kMostProducts));
    return matmuls(products.subspan(kMostProducts));
  }
  for (const Product& one : products) check_product(one);
  if (products[0].x.rows == 0) return;
  if (is_shared_by_rows(products[0].x.rows)) {
    for (const Product& one : products) multiply_by_rows(one);
  } else if (sharing_.is_on()) {
    multiply_by_panels(products);
  } else {
    for (const Product& one : products) multiply_panels(one, 0, panels_of(one));
  }
}

// Threads share blocks of rows.
void CpuOperations::multiply_by_rows(const Product& product) {
  const int rows = kernels_.block_rows;
  const int blocks = divide_up(product.x.rows, rows);
  sharing_.split(blocks, work_of(product), [&](int begin_block, int end_block) {
    const int begin = begin_block * rows;
    const int count = std::min(end_block * rows, product.x.rows) - begin;
    const End end = {product.end.activation, rows_of(product.end.times, begin, count),
                     rows_of(product.end.plus, begin, count)};
    multiply_panels({product.x.slice(begin, count), product.weight, end,
                     product.out.slice(begin, count), product.up},
                    0, panels_of(product));
  });
}

// Threads share the panels of all these products.
void CpuOperations::multiply_by_panels(std::span<const Product> products) {
  int64_t work = 0;
  int panels = 0;
  for (const Product& one : products) {
    work += work_of(one);
    panels += panels_of(one);
  }
  const int count = sharing_.product_tasks(work);
  const bool equal = count == sharing_.threads_for(work);
  const PanelTasks tasks(products, kernels_.panel, std::min(count, panels), equal);
  sharing_.share(tasks.count(), [&](int task) {
    tasks.run(task,
              [&](size_t i, int first, int last) { multiply_panels(products[i], first, last); });
  });
}

int CpuOperations::panels_of(const Product& product) const {
  return divide_up(product.weight->out, kernels_.panel);
}

// Panels [first, last) of a product with one weight or two.
void CpuOperations::multiply_panels(const Product& one, int first, int last) {
  multiply(one.x, *one.weight, one.end, one.out, first, last);
  if (one.up == nullptr) return;
  multiply(one.x, *one.up, {Activation::kNone, one.out}, one.out, first, last);
}

// Rounds x into scratch memory. All tasks of a shared product have the same x, and each thread
// rounds it once.
void CpuOperations::round(View x, Precision precision) {
  const Rounded what = {x.data, x.stride, x.rows, x.cols, precision, sharing_.phase()};
  if (sharing_.is_on() && what == rounded_) return;
  rounded_ = what;
  const auto rows = precision == Precision::kBlocks ? kernels_.round_blocks
                    : precision == Precision::kInt8 ? kernels_.round_int8
                                                    : kernels_.round_rows;
  rows(x.f32(), x.stride, x.rows, x.cols, scratch_.as<float>());
}

// Panels [first, last) of a matmul.
void CpuOperations::multiply(View x, const Weight& weight, const End& end, View out, int first,
                             int last) {
  cpu::MatmulArgs args = {.x = x.f32(),
                          .x_stride = x.stride,
                          .panels = weight.panels.as<float>(),
                          .bias = weight.bias.as<float>(),
                          .scales = weight.scales.as<float>(),
                          .room = nullptr,
                          .blocks = weight.blocks,
                          .in = weight.in,
                          .out = weight.out,
                          .activation = end.activation,
                          .times = matrix(end.times),
                          .plus = matrix(end.plus),
                          .y = out.f32(),
                          .y_stride = out.stride};
  if (weight.precision == Precision::kFp32) {
    const bool widens = weight.stored == DType::kBF16;
    (widens ? kernels_.matmul_widened : kernels_.matmul)(args, x.rows, first, last);
    return;
  }
  const auto product = weight.precision == Precision::kBlocks ? kernels_.matmul_blocks
                       : weight.precision == Precision::kInt8 ? kernels_.matmul_int8
                                                              : kernels_.matmul_rounded;
  args.x = scratch_.as<float>();
  args.x_stride = divide_up(weight.in, 2);
  args.room = scratch_.as<float>() + kernels_.block_rows * padded_to(cpu::kStepInputs, weight.in);
  for (int row = 0; row < x.rows; row += kernels_.block_rows) {
    const int rows = std::min(kernels_.block_rows, x.rows - row);
    round(x.slice(row, rows), weight.precision);
    args.y = out.f32(row);
    args.times = matrix(rows_of(end.times, row, rows));
    args.plus = matrix(rows_of(end.plus, row, rows));
    product(args, rows, first, last);
  }
}

}  // namespace runnel
