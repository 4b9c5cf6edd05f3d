// Products of CpuOperations with weights.
#include <algorithm>
#include <array>
#include <bit>

#include "kernels/checks.h"
#include "kernels/cpu/operations.h"

namespace runnel {
namespace {

using cpu::divide_up;
using cpu::part;

// Matmuls that are shared at once, at most.
constexpr int kMostProducts = 8;

// Panels that a tile of few rows takes at once.
constexpr int kPanelsOfATile = 4;

int64_t padded_to(int multiple, int count) {
  return int64_t{divide_up(count, multiple)} * multiple;
}

// Rows [first, first + count) of an optional matrix.
View rows_of(View view, int first, int count) {
  return view.data == nullptr ? view : view.slice(first, count);
}

// 50 multiply-adds a nanosecond, half of that for a single row.
int64_t matmul_work(View x, const Weight& weight) {
  return int64_t{x.rows + 1} * weight.in * weight.out / 50;
}

// The panels of a matmul, in tasks.
struct PanelTasks {
  int panels, unit, units, count;

  // Task `index` has the panels [begin(index), begin(index + 1)).
  int begin(int index) const { return std::min(part(units, index, count) * unit, panels); }
};

// About `wanted` tasks of whole tiles, where there are enough panels.
PanelTasks panel_tasks(int panels, int64_t wanted) {
  const int count = static_cast<int>(std::clamp<int64_t>(wanted, 1, panels));
  const int unit = std::bit_floor(static_cast<unsigned>(std::min(panels / count, kPanelsOfATile)));
  const int units = divide_up(panels, unit);
  return {panels, unit, units, std::min(count, units)};
}

}  // namespace

void CpuOperations::make_room_for(const HostTensor& weight, Precision precision) {
  // Rounded inputs, followed by a panel in bf16.
  const int64_t rounded =
      padded_to(cpu::kStepInputs, weight.cols) *
      (kernels_.block_rows + (precision == Precision::kInt8 ? kernels_.panel / 2 : 0));
  grow_scratch(std::max(precision == Precision::kFp32 ? 0 : rounded, int64_t{2} * weight.rows));
}

// One product, or the two of a product with a second weight.
void CpuOperations::multiply_alone(const Product& product) {
  check_product(product);
  if (product.up != nullptr) {
    multiply_alone({product.x, product.weight, product.end, product.out});
    const End times = {Activation::kNone, product.out};
    return multiply_alone({product.x, product.up, times, product.out});
  }
  const View x = product.x;
  const View out = product.out;
  const Weight& weight = *product.weight;
  const End& end = product.end;
  const int panels = divide_up(weight.out, kernels_.panel);
  const int64_t work = matmul_work(x, weight);
  if (!is_shared_by_rows(x.rows)) {
    const PanelTasks tasks = panel_tasks(panels, sharing_.tasks_for(work));
    sharing_.share(x.rows == 0 ? 0 : tasks.count, [&](int task) {
      multiply(x, weight, end, out, tasks.begin(task), tasks.begin(task + 1));
    });
    return;
  }
  const int rows = kernels_.block_rows;
  sharing_.split(divide_up(x.rows, rows), work, [&](int begin_block, int end_block) {
    const int begin = begin_block * rows;
    const int count = std::min(end_block * rows, x.rows) - begin;
    const End part = {end.activation, rows_of(end.times, begin, count),
                      rows_of(end.plus, begin, count)};
    multiply(x.slice(begin, count), weight, part, out.slice(begin, count), 0, panels);
  });
}

void CpuOperations::matmuls(std::span<const Product> products) {
  const bool alone = !sharing_.is_on() || products.size() < 2 ||
                     is_shared_by_rows(products[0].x.rows) ||
                     std::ranges::any_of(products, [](const Product& one) { return one.up; });
  if (alone) {
    for (const Product& one : products) multiply_alone(one);
    return;
  }
  if (products.size() > kMostProducts) {
    matmuls(products.first(kMostProducts));
    return matmuls(products.subspan(kMostProducts));
  }
  int64_t work = 1;
  for (const Product& one : products) {
    check_product(one);
    work += matmul_work(one.x, *one.weight);
  }
  std::array<PanelTasks, kMostProducts> shares;
  int tasks = 0;
  for (size_t i = 0; i < products.size() && products[i].x.rows > 0; ++i) {
    const Weight& weight = *products[i].weight;
    const int64_t wanted = sharing_.tasks_for(work) * matmul_work(products[i].x, weight) / work;
    shares[i] = panel_tasks(divide_up(weight.out, kernels_.panel), wanted + 1);
    tasks += shares[i].count;
  }
  sharing_.share(tasks, [&](int task) {
    size_t i = 0;
    for (; task >= shares[i].count; ++i) task -= shares[i].count;
    const Product& one = products[i];
    multiply(one.x, *one.weight, one.end, one.out, shares[i].begin(task),
             shares[i].begin(task + 1));
  });
}

// Rounds x into scratch memory. The tasks of a product that threads share have the same x, which
// each of them rounds once.
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
