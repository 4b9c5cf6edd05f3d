// A store whose operations fail, are slow, or lose their results, as a test decides.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/store.h"

namespace runnel {

class FaultyStore final : public Store {
 public:
  // Decides by its name how an operation ends.
  using Verdict = std::function<Status(const std::string&)>;

  // `before` is called with the name of each operation but sync(). If its status is not OK, the
  // operation fails with it. `after` is called after each operation but load(), list(), sweep() and
  // sync(). If its status is not OK, it replaces the outcome.
  FaultyStore(std::shared_ptr<Store> store, Verdict before, Verdict after = {})
      : store_(std::move(store)), before_(std::move(before)), after_(std::move(after)) {}

  const std::string& replica() const override { return store_->replica(); }
  bool needs_seals() const override { return store_->needs_seals(); }
  Result<Begun> begin(const std::string& key, const Claim& claim) override {
    if (Status s = before_("begin"); !s.ok()) return s;
    return told("begin", store_->begin(key, claim));
  }
  Result<std::optional<Record>> look(const std::string& key) override {
    if (Status s = before_("look"); !s.ok()) return s;
    return told("look", store_->look(key));
  }
  Status load(const std::string& key, const Record& record, const StateSink& sink) override {
    if (Status s = before_("load"); !s.ok()) return s;
    return store_->load(key, record, sink);
  }
  Result<bool> renew(const std::string& key, const Holder& holder) override {
    if (Status s = before_("renew"); !s.ok()) return s;
    return told("renew", store_->renew(key, holder));
  }
  Result<bool> end(const std::string& key, const Holder& holder,
                   const Snapshot* snapshot) override {
    const std::string operation = snapshot == nullptr ? "give up" : "end";
    if (Status s = before_(operation); !s.ok()) return s;
    return told(operation, store_->end(key, holder, snapshot));
  }
  // Also named "end", because a log entry or a state ends a call.
  Result<bool> log(const std::string& key, const Holder& holder, const LogEntry& entry) override {
    if (Status s = before_("end"); !s.ok()) return s;
    return told("end", store_->log(key, holder, entry));
  }
  Result<bool> settle(const std::string& key, int64_t saved, const Snapshot& snapshot) override {
    if (Status s = before_("settle"); !s.ok()) return s;
    return told("settle", store_->settle(key, saved, snapshot));
  }
  Result<int64_t> create(const std::string& key, const NewSession& session,
                         const Snapshot* snapshot) override {
    if (Status s = before_("create"); !s.ok()) return s;
    return told("create", store_->create(key, session, snapshot));
  }
  Result<bool> remove(const std::string& key) override {
    if (Status s = before_("remove"); !s.ok()) return s;
    return told("remove", store_->remove(key));
  }
  Result<std::vector<std::string>> list(const std::string& list, const std::string& after,
                                        size_t most) override {
    if (Status s = before_("list"); !s.ok()) return s;
    return store_->list(list, after, most);
  }
  Status sweep() override {
    if (Status s = before_("sweep"); !s.ok()) return s;
    return store_->sweep();
  }
  Status sync() override { return store_->sync(); }

 private:
  template <typename T>
  Result<T> told(const std::string& operation, Result<T> outcome) const {
    if (after_) {
      if (Status s = after_(operation); !s.ok()) return s;
    }
    return outcome;
  }

  const std::shared_ptr<Store> store_;
  const Verdict before_;
  const Verdict after_;
};

}  // namespace runnel
