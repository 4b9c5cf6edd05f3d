#include "base/json.h"

#include <set>
#include <utility>
#include <vector>

#include "base/ordered_json.h"
#include "base/text.h"

namespace runnel {
namespace {

// Builds the tree from the parser's events, so that it can stop as soon as a limit is exceeded.
template <typename Tree>
class TreeBuilder {
 public:
  TreeBuilder(const JsonLimits& limits, Tree& root) : limits_(limits), root_(root) {}

  const std::string& error() const { return error_; }

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(typename Tree::number_integer_t value) { return add(value) != nullptr; }
  bool number_unsigned(typename Tree::number_unsigned_t value) { return add(value) != nullptr; }
  bool number_float(typename Tree::number_float_t value, const std::string&) {
    return add(value) != nullptr;
  }
  bool string(std::string& value) { return add(std::move(value)) != nullptr; }
  bool binary(typename Tree::binary_t&) { return fail("binary data in JSON"); }  // never in text

  bool start_object(size_t) { return open(Tree::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Tree::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) {
      return fail("key " + quote(path() + name, 200) + " appears twice; expected once");
    }
    level.key = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    const std::string_view text = error.what();
    const size_t id = text.find("] ");  // the library's own number of the error
    return fail("not valid JSON: " +
                printable(id == std::string_view::npos ? text : text.substr(id + 2), 240));
  }

 private:
  struct Level {
    Tree* node;
    std::string key = {};             // of the member being read
    std::set<std::string> keys = {};  // of its members: a search in an ordered object is slow
  };

  bool fail(std::string error) {
    error_ = std::move(error);
    return false;
  }

  // The path of the object being read: "model.head.", "symbols[3].", "[0].", "" for the outermost.
  std::string path() const {
    std::string path;
    for (size_t i = 0; i + 1 < levels_.size(); ++i) {
      const Tree& node = *levels_[i].node;
      if (node.is_object()) {
        path += levels_[i].key + ".";
        continue;
      }
      if (!path.empty()) path.pop_back();  // "symbols." becomes "symbols[3]."
      path += '[';
      path += std::to_string(node.size() - 1);
      path += "].";
    }
    return path;
  }

  Tree* add(Tree value) {
    if (++values_ > limits_.values) {
      fail("more than " + std::to_string(limits_.values) + " JSON values; expected fewer");
      return nullptr;
    }
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.node->is_array()) {
      level.node->push_back(std::move(value));
      return &level.node->back();
    }
    return &put(*level.node, level.key, std::move(value));
  }

  // Adds a member whose key is new.
  static Json& put(Json& object, const std::string& key, Json value) {
    return object[key] = std::move(value);
  }
  static OrderedJson& put(OrderedJson& object, const std::string& key, OrderedJson value) {
    auto& members = object.get_ref<OrderedJson::object_t&>();
    members.OrderedJson::object_t::Container::emplace_back(key, std::move(value));
    return members.back().second;
  }

  bool open(Tree value) {
    if (std::ssize(levels_) >= limits_.depth) {
      return fail("nested deeper than " + std::to_string(limits_.depth) +
                  " levels; expected fewer");
    }
    Tree* node = add(std::move(value));
    if (node == nullptr) return false;
    levels_.push_back({node});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Tree& root_;
  std::vector<Level> levels_;
  int64_t values_ = 0;
  std::string error_;
};

template <typename Tree>
Result<Tree> parse(std::string_view text, const std::string& source, const JsonLimits& limits) {
  if (std::ssize(text) > limits.bytes) {
    return invalid_argument(source + ": " + std::to_string(text.size()) +
                            " bytes of JSON; expected at most " + std::to_string(limits.bytes));
  }
  // The library treats a zero byte as the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return invalid_argument(source + ": not valid JSON: a zero byte at offset " +
                            std::to_string(zero) + "; expected UTF-8 text");
  }
  Tree tree;
  TreeBuilder<Tree> builder(limits, tree);
  if (!Tree::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid_argument(source + ": " + builder.error());
  }
  return tree;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& source,
                        const JsonLimits& limits) {
  return parse<Json>(text, source, limits);
}

Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& source,
                                       const JsonLimits& limits) {
  return parse<OrderedJson>(text, source, limits);
}

int64_t tree_bytes(const OrderedJson& tree) {
  constexpr int64_t kAllocation = 48;  // of a text, a list or an object, without its contents
  constexpr int64_t kItem = 2 * sizeof(OrderedJson);    // a list doubles when it grows
  constexpr int64_t kMember = 2 * sizeof(std::string);  // an object does, too
  if (tree.is_string()) return kAllocation + std::ssize(tree.get_ref<const std::string&>());
  if (!tree.is_structured()) return 0;
  int64_t bytes = kAllocation;
  if (tree.is_array()) {
    for (const OrderedJson& item : tree) bytes += kItem + tree_bytes(item);
    return bytes;
  }
  for (const auto& [key, member] : tree.get_ref<const OrderedJson::object_t&>()) {
    bytes += kMember + kItem + std::ssize(key) + tree_bytes(member);
  }
  return bytes;
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return quote(value.get_ref<const std::string&>());
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array of " + std::to_string(value.size());
    default:
      return value.dump();
  }
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string json_text(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace runnel
