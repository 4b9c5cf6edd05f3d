#include "server/process/model_loader.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "server/host/process_figures.h"
#include "server/process/thread_room.h"
#include "server/process/update_models.h"

namespace runnel {
namespace {

struct Stopped {};  // thrown through the loading code, which does not know it

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

Result<ServedModel> ModelLoader::load(const ModelConfig& from, const ShowLoading& show) const {
  const auto progress = [&](int64_t done, int64_t all) {
    if (stopped_()) throw Stopped();
    if (show) show(done, all);
  };
  log_.info("load", {{"path", from.path}});
  auto files = files_of(from);  // the next reload notices changes from here on
  const int64_t before = process_figures().resident_bytes;
  const TimePoint begun = clock_.now();
  Result<ServedModel> loaded = Status(Code::kCancelled, "the server is shutting down");
  try {
    if (!stopped_()) loaded = load_model(from, config_, make_model_, clock_, progress);
  } catch (const Stopped&) {
  } catch (const std::bad_alloc&) {
    loaded =
        Status(Code::kResourceExhausted, from.path + ": there is not enough memory to load it");
  } catch (const std::system_error& error) {
    loaded = Status(Code::kResourceExhausted, from.path + ": " + no_thread_text(error));
  }
  if (show) show(0, 0);
  if (!loaded.ok()) return loaded;
  log_.info("loaded", {{"model", loaded->name}, {"seconds", seconds_between(begun, clock_.now())}});
  loaded->path = from.path;
  loaded->files = std::move(files);
  loaded->loaded_bytes = std::max<int64_t>(0, process_figures().resident_bytes - before);
  return loaded;
}

}  // namespace runnel
