#include <boost/asio/post.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <new>

#include "base/check.h"
#include "server/http/http_connection.h"

namespace runnel {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

// Formats an answer and passes it to the connection, which may be gone.
class HttpReply::Exchange {
 public:
  Exchange(std::weak_ptr<HttpWorker> worker, std::weak_ptr<HttpConnection> connection,
           AnswerForm form, std::shared_ptr<std::atomic<int64_t>> waiting)
      : worker_(std::move(worker)),
        connection_(std::move(connection)),
        form_(form),
        waiting_(std::move(waiting)) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  ~Exchange() {
    if (phase_ == Phase::kEnded) return;
    try {
      if (phase_ == Phase::kNew) {
        send(http_error(500, "the server has no answer"), nullptr);
      } else {
        abort();
      }
    } catch (const std::bad_alloc&) {  // then only the client can close the connection
    }
  }

  void set_header(std::string name, std::string value) {
    expect(Phase::kNew);
    headers_.emplace_back(std::move(name), std::move(value));
  }

  void send(HttpAnswer answer, std::shared_ptr<const void> kept) {
    expect(Phase::kNew);
    std::vector<Piece> pieces =
        one(answer_head(form_, answer.status, answer.content_type, answer.body.size(), headers_));
    if (!form_.head_only) pieces.push_back({.bytes = std::move(answer.body)});
    pieces.back().kept = std::move(kept);
    deliver(std::move(pieces), Phase::kEnded);
  }

  void begin(int status, std::string_view content_type, std::string_view heartbeat) {
    expect(Phase::kNew);
    if (!heartbeat.empty() && !form_.head_only) {
      to_connection([text = chunk_of(heartbeat)](HttpConnection& connection) mutable {
        connection.set_heartbeat(std::move(text));
      });
    }
    deliver(one(answer_head(form_, status, content_type, std::nullopt, headers_)), Phase::kBegun);
  }

  void write(std::string_view chunk, std::function<void(bool)> taken) {
    expect(Phase::kBegun);
    // An empty chunk would end the body.
    std::vector<Piece> pieces = one(form_.head_only || chunk.empty() ? "" : chunk_of(chunk));
    pieces.front().taken = Taken(std::move(taken));
    try {
      deliver(std::move(pieces), Phase::kBegun);
    } catch (const std::bad_alloc&) {  // destroying the piece has called `taken`
    }
  }

  void end() {
    expect(Phase::kBegun);
    const bool chunked = form_.version == 11 && !form_.head_only;
    deliver(one(chunked ? beast::buffers_to_string(http::make_chunk_last()) : ""), Phase::kEnded);
  }

  void read(std::function<void(HttpPiece)> take) {
    to_connection([taker = BodyTaker(std::move(take))](HttpConnection& connection) mutable {
      connection.read_body(std::move(taker));
    });
  }

  void abort() {
    to_connection([](HttpConnection& connection) { connection.close(); });
  }

  int64_t waiting() const { return waiting_->load(); }

  void on_gone(std::function<void()> gone) {
    to_connection([told = Taken([gone = std::move(gone)](bool) { gone(); })](
                      HttpConnection& connection) mutable { connection.on_gone(std::move(told)); });
  }

 private:
  enum class Phase { kNew, kBegun, kEnded };

  void expect(Phase phase) const {
    check(phase_ == phase, "an answer is sent whole, or begun, written and ended");
  }

  static std::vector<Piece> one(std::string bytes) {
    std::vector<Piece> pieces(1);
    pieces.front().bytes = std::move(bytes);
    return pieces;
  }

  std::string chunk_of(std::string_view text) const {
    if (form_.version < 11) return std::string(text);
    return beast::buffers_to_string(http::make_chunk(asio::const_buffer(text.data(), text.size())));
  }

  void deliver(std::vector<Piece> pieces, Phase next) {
    for (const Piece& piece : pieces) waiting_->fetch_add(std::ssize(piece.bytes));
    // Changes the phase before posting the pieces: a writer who learns that they were taken may
    // write again immediately.
    const Phase before = phase_.exchange(next);
    try {
      to_connection([pieces = std::move(pieces),
                     last = next == Phase::kEnded](HttpConnection& connection) mutable {
        connection.deliver(std::move(pieces), last);
      });
    } catch (const std::bad_alloc&) {
      if (before != next) phase_ = before;
      throw;
    }
  }

  template <typename Task>
  void to_connection(Task task) {
    const std::shared_ptr<HttpWorker> worker = worker_.lock();
    if (worker == nullptr) return;
    asio::post(worker->context, [to = connection_, task = std::move(task)]() mutable {
      if (const auto connection = to.lock()) connection->run([&] { task(*connection); });
    });
  }

  const std::weak_ptr<HttpWorker> worker_;
  const std::weak_ptr<HttpConnection> connection_;
  const AnswerForm form_;
  HttpHeaders headers_;
  std::atomic<Phase> phase_ = Phase::kNew;
  const std::shared_ptr<std::atomic<int64_t>> waiting_;
};

void HttpReply::set_header(std::string name, std::string value) {
  exchange_->set_header(std::move(name), std::move(value));
}
void HttpReply::send(HttpAnswer answer, std::shared_ptr<const void> kept) {
  exchange_->send(std::move(answer), std::move(kept));
}
void HttpReply::begin(int status, std::string_view type, std::string_view heartbeat) {
  exchange_->begin(status, type, heartbeat);
}
void HttpReply::write(std::string_view chunk, std::function<void(bool)> taken) {
  const std::shared_ptr<Exchange> held = exchange_;  // calling `taken` may drop this reply
  held->write(chunk, std::move(taken));
}
void HttpReply::end() { exchange_->end(); }
void HttpReply::read(std::function<void(HttpPiece)> take) {
  const std::shared_ptr<Exchange> held = exchange_;  // calling `take` may drop this reply
  held->read(std::move(take));
}
void HttpReply::abort() { exchange_->abort(); }
int64_t HttpReply::waiting() const { return exchange_->waiting(); }
void HttpReply::on_gone(std::function<void()> gone) { exchange_->on_gone(std::move(gone)); }

HttpReply make_reply(std::weak_ptr<HttpWorker> worker, std::weak_ptr<HttpConnection> connection,
                     const AnswerForm& form, std::shared_ptr<std::atomic<int64_t>> waiting) {
  return HttpReply(std::make_shared<HttpReply::Exchange>(std::move(worker), std::move(connection),
                                                         form, std::move(waiting)));
}

}  // namespace runnel
