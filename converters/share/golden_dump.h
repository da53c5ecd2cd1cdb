// Dump named tensors of a ggml graph for `graphtools compare`, and read goldens back.
//
//     golden_dump::Writer dump("engine.gguf");
//     x = dump.mark(ggml_relu(ctx, x), "stem");   // while the graph is built
//     ...                                         // expand, allocate, compute
//     dump.capture(graph);                        // copies what was marked
//     dump.write();                               // engine.gguf is there, whole, or unchanged
//
//     golden_dump::Goldens goldens("baseline.gguf");
//     ggml_tensor * x = goldens.input(ctx, "fbank");   // a tensor of the golden's shape
//     ...                                              // build, allocate
//     goldens.feed("fbank", x);                        // its values
//
// Axis order: a shape here is numpy's, outermost axis first, as docs/goldens.md gives it; ggml's
// ne runs the other way. Golden [C, F, T] is ne {T, F, C, 1}, in the same order in memory.
//
// Errors: everything that goes wrong throws golden_dump::Error, which says what and where. Nothing
// is guessed and nothing half-written stays. Values go out bit by bit, NaN and infinity included.
//
// C++17 and ggml's public API (ggml.h, ggml-backend.h, and gguf.h, which came in 2025), no more.
// Not thread-safe. Part of onnx-manifest, Apache-2.0.

#pragma once

#include <ggml-backend.h>
#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace golden_dump {

struct Error : std::runtime_error {
    explicit Error(const std::string & what) : std::runtime_error("golden_dump: " + what) {}
};

using Shape = std::vector<int64_t>;  // numpy's order; {} is a scalar

// A tensor in host memory: f32, contiguous, the last axis of `shape` fastest.
struct Golden {
    std::string        name;
    Shape              shape;
    std::vector<float> values;

    // The same shape as ggml has it. Of more than four axes the first ones are merged.
    std::array<int64_t, GGML_MAX_DIMS> ne() const {
        std::array<int64_t, GGML_MAX_DIMS> out{1, 1, 1, 1};
        for (size_t i = 0; i < shape.size(); i++) {
            out[std::min<size_t>(i, GGML_MAX_DIMS - 1)] *= shape[shape.size() - 1 - i];
        }
        return out;
    }
};

namespace detail {

inline std::string quoted(const std::string & name) { return "'" + name + "'"; }

inline std::string text(const Shape & shape) {  // "1,80,298", as in the key baseline.shapes
    std::string out;
    for (int64_t d : shape) out += (out.empty() ? "" : ",") + std::to_string(d);
    return out;
}

inline Shape numpy_shape(const ggml_tensor * t) {
    return {std::make_reverse_iterator(t->ne + ggml_n_dims(t)), std::make_reverse_iterator(t->ne)};
}

// Who owns the memory: ggml keeps no chains of views, so one step is enough.
inline const ggml_tensor * root(const ggml_tensor * t) { return t->view_src ? t->view_src : t; }

inline bool only_looks(const ggml_tensor * t) {  // a node that computes nothing
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE ||
           t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

inline bool overlap(const ggml_tensor * a, const ggml_tensor * b) {
    const char * x = static_cast<const char *>(a->data);
    const char * y = static_cast<const char *>(b->data);
    return root(a) == root(b) && x < y + ggml_nbytes(b) && y < x + ggml_nbytes(a);
}

// Up to 2^24 every integer is an f32; past that few are, and none is worth the doubt.
template <typename T> float exact(const char * at, const std::string & name) {
    T value;
    std::memcpy(&value, at, sizeof value);
    if (value > (1 << 24) || value < -(1 << 24)) {
        throw Error(quoted(name) + " holds the integer " + std::to_string(value) +
                    ", which f32 may not have");
    }
    return static_cast<float>(value);
}

// One row of n values that lie one after the other in a tensor of this type.
inline void row_to_f32(ggml_type type, const char * row, float * out, int64_t n,
                       const std::string & name) {
    if (type == GGML_TYPE_F32) {
        std::memcpy(out, row, n * sizeof(float));
        return;
    }
    if (type == GGML_TYPE_I32 || type == GGML_TYPE_I64) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = type == GGML_TYPE_I32 ? exact<int32_t>(row + 4 * i, name)
                                           : exact<int64_t>(row + 8 * i, name);
        }
        return;
    }
    const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
    if (!to_float) {
        throw Error(quoted(name) + " has the type " + ggml_type_name(type) +
                    ", which ggml cannot turn into f32");
    }
    to_float(row, out, n);
}

// Values in the order of ne, whatever the strides: `bytes` is what lies from t's first byte on.
inline std::vector<float> to_f32(const ggml_tensor * t, const std::vector<char> & bytes,
                                 const std::string & name) {
    const size_t row_size = ggml_row_size(t->type, t->ne[0]), item = ggml_type_size(t->type);
    const bool packed = t->nb[0] == item;  // always so where a block holds several values
    std::vector<float> out(ggml_nelements(t));
    std::vector<char>  row(row_size);
    float * to = out.data();
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++)
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++, to += t->ne[0]) {
                const char * at = bytes.data() + i3 * t->nb[3] + i2 * t->nb[2] + i1 * t->nb[1];
                if (packed) {
                    std::memcpy(row.data(), at, row_size);
                } else {
                    for (int64_t i0 = 0; i0 < t->ne[0]; i0++) {
                        std::memcpy(row.data() + i0 * item, at + i0 * t->nb[0], item);
                    }
                }
                row_to_f32(t->type, row.data(), to, t->ne[0], name);
            }
    return out;
}

inline Golden read_tensor(const ggml_tensor * t, const std::string & name) {
    if (!t->data) throw Error(quoted(name) + " has no memory: its graph is not allocated");
    std::vector<char> bytes(ggml_nbytes(t));
    if (root(t)->buffer) {
        ggml_backend_tensor_get(t, bytes.data(), 0, bytes.size());
    } else {
        std::memcpy(bytes.data(), t->data, bytes.size());  // a context that owns its tensors
    }
    return {name, numpy_shape(t), to_f32(t, bytes, name)};
}

struct Free {
    void operator()(ggml_context * p) const { ggml_free(p); }
    void operator()(gguf_context * p) const { gguf_free(p); }
};
using Context = std::unique_ptr<ggml_context, Free>;
using Gguf    = std::unique_ptr<gguf_context, Free>;

// A file that takes its name when it is whole, and is removed when it is not.
class Replacing {
  public:
    explicit Replacing(std::string path) : path_(std::move(path)) {
        temp_ = path_ + "." + std::to_string(std::random_device{}()) + ".tmp";
        file_ = std::fopen(temp_.c_str(), "wbx");
        if (!file_) fail("cannot be created");
    }
    Replacing(const Replacing &)             = delete;
    Replacing & operator=(const Replacing &) = delete;
    ~Replacing() {
        if (file_) std::fclose(file_);
        if (!temp_.empty()) std::remove(temp_.c_str());
    }
    void append(const void * bytes, size_t size) {
        if (size && std::fwrite(bytes, 1, size, file_) != size) fail("cannot be written");
    }
    void finish() {  // a full disk may show only when the last bytes are flushed
        const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
        if (!closed) fail("cannot be written");
        std::error_code error;
        std::filesystem::rename(temp_, path_, error);
        if (error) throw Error(path_ + ": cannot be replaced: " + error.message());
        temp_.clear();
    }

  private:
    [[noreturn]] void fail(const char * why) const {
        throw Error(path_ + ": " + why + ": " + std::strerror(errno));
    }
    std::string path_, temp_;
    std::FILE * file_ = nullptr;
};

}  // namespace detail

// Collects tensors and writes them as one GGUF that `graphtools compare` reads.
class Writer {
  public:
    explicit Writer(std::string path) : path_(std::move(path)) {}

    // Keep this tensor's value, to be dumped under `name` (any length; names are unique). Returns
    // the tensor. Call it while the graph is built: the allocator gives memory away once a tensor
    // was read, unless it is an output, which this makes it. A view keeps what it looks into.
    ggml_tensor * mark(ggml_tensor * t, const std::string & name) {
        if (!t) throw Error(detail::quoted(name) + " is marked, but is no tensor");
        const ggml_tensor * owner = detail::root(t);
        if (owner->buffer && !(owner->flags & GGML_TENSOR_FLAG_OUTPUT) &&
            ggml_backend_buffer_get_usage(owner->buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
            throw Error(detail::quoted(name) + " is marked after its graph was allocated: "
                        "its memory may hold another tensor by now");
        }
        claim(name);
        ggml_set_output(t);
        if (t->view_src) ggml_set_output(t->view_src);  // ggml 0.9.4 does not do so itself
        entries_.push_back({t, {name, {}, {}}});
        return t;
    }

    // The same for an engine that has named its tensors with ggml_set_name: marks those of a built
    // graph that bear one of `names`, e.g. Goldens::names(). Returns the names it has no tensor of.
    std::vector<std::string> mark_named(ggml_cgraph *                    graph,
                                        const std::vector<std::string> & names) {
        std::unordered_map<std::string, ggml_tensor *> found;
        std::set<std::string>                          wanted(names.begin(), names.end());
        for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
            ggml_tensor * t = ggml_graph_node(graph, i);
            if (wanted.count(t->name) && !found.emplace(t->name, t).second) {
                throw Error("two tensors of the graph have the name " + detail::quoted(t->name));
            }
        }
        std::vector<std::string> missing;
        for (const std::string & name : names) {
            const auto it = found.find(name);
            if (it == found.end()) missing.push_back(name);
            else mark(it->second, name);
        }
        return missing;
    }

    // Copy the marked tensors of a computed graph; returns how many. Where a backend computes
    // asynchronously, synchronize it first. Each mark is captured once, so that several graphs
    // can go into one file.
    size_t capture(ggml_cgraph * graph) {
        std::unordered_map<const ggml_tensor *, int> place;  // -1: read by a node, but none itself
        const int n = ggml_graph_n_nodes(graph);
        for (int i = 0; i < n; i++) {
            const ggml_tensor * node = ggml_graph_node(graph, i);
            for (const ggml_tensor * s : node->src) {
                if (s) place.emplace(s, -1);
            }
            place[node] = i;
        }
        size_t captured = 0;
        for (auto & [tensor, golden] : entries_) {
            if (!tensor) continue;
            const auto at = place.find(tensor);
            if (at == place.end()) continue;
            for (int i = at->second + 1; i < n; i++) {
                const ggml_tensor * later = ggml_graph_node(graph, i);
                if (!detail::only_looks(later) && detail::overlap(later, tensor)) {
                    throw Error(detail::quoted(golden.name) + " is overwritten in place by " +
                                ggml_op_desc(later) + " " + detail::quoted(later->name) +
                                ": mark a ggml_cont of it");
                }
            }
            golden = detail::read_tensor(tensor, golden.name);
            tensor = nullptr;
            captured++;
        }
        return captured;
    }

    // Dump values that are in no graph: product(shape) floats, the last axis of `shape` fastest.
    void add(const std::string & name, const float * values, const Shape & shape) {
        size_t count = 1;
        for (int64_t d : shape) count *= d > 0 ? d : 0;
        claim(name);
        entries_.push_back({nullptr, {name, shape, {values, values + count}}});
    }

    // Write everything. On an error the file that was there before is as it was.
    void write() const {
        if (entries_.empty()) throw Error(path_ + ": nothing was marked or added");
        for (const auto & [tensor, golden] : entries_) {
            if (tensor) {
                throw Error(detail::quoted(golden.name) + " was marked but not captured: "
                            "it is in no graph that capture() was called with");
            }
            if (golden.values.empty()) throw Error(detail::quoted(golden.name) + " is empty");
        }
        const detail::Context ctx(ggml_init({entries_.size() * ggml_tensor_overhead() + 1024,
                                             nullptr, /*no_alloc=*/true}));
        const detail::Gguf    gguf(gguf_init_empty());
        describe(ctx.get(), gguf.get());
        std::vector<char> meta(gguf_get_meta_size(gguf.get()));
        gguf_get_meta_data(gguf.get(), meta.data());

        detail::Replacing file(path_);
        file.append(meta.data(), meta.size());
        const size_t            alignment = gguf_get_alignment(gguf.get());
        const std::vector<char> zeros(alignment);
        for (const auto & entry : entries_) {
            const size_t size = entry.golden.values.size() * sizeof(float);
            file.append(entry.golden.values.data(), size);
            file.append(zeros.data(), GGML_PAD(size, alignment) - size);
        }
        file.finish();
    }

  private:
    struct Entry {
        ggml_tensor * tensor;  // null once its values are here
        Golden        golden;
    };

    void claim(const std::string & name) {
        const bool odd = std::any_of(name.begin(), name.end(),
                                     [](unsigned char c) { return c < 32; });
        if (name.empty() || odd) throw Error(detail::quoted(name) + " cannot be a tensor's name");
        if (!names_.insert(name).second) throw Error(detail::quoted(name) + " is dumped twice");
    }

    // Keys and tensor places. Full names and numpy shapes stand in two keys, since a GGUF has
    // names of at most 63 bytes and one to four axes, and knows no axes of size 1 at the front.
    void describe(ggml_context * ctx, gguf_context * gguf) const {
        std::vector<const char *> full, shapes;
        std::vector<std::string>  shape_texts;
        size_t                    number = 0;
        for (const auto & entry : entries_) {
            const Golden & golden = entry.golden;
            std::string    stored = golden.name;
            while (stored.size() > 63 || (stored != golden.name && names_.count(stored))) {
                stored = "~" + std::to_string(number++);
            }
            ggml_tensor * t = ggml_new_tensor(ctx, GGML_TYPE_F32, GGML_MAX_DIMS,
                                              golden.ne().data());
            ggml_set_name(t, stored.c_str());
            gguf_add_tensor(gguf, t);
            full.push_back(golden.name.c_str());
            shape_texts.push_back(detail::text(golden.shape));
        }
        for (const std::string & s : shape_texts) shapes.push_back(s.c_str());
        gguf_set_val_str(gguf, "general.architecture", "golden-dump");
        gguf_set_arr_str(gguf, "baseline.tensors", full.data(), full.size());
        gguf_set_arr_str(gguf, "baseline.shapes", shapes.data(), shapes.size());
    }

    std::string           path_;
    std::vector<Entry>    entries_;
    std::set<std::string> names_;
};

// Reads a baseline, or any GGUF of tensors; one tensor at a time, in any type ggml can widen.
class Goldens {
  public:
    explicit Goldens(std::string path) : path_(std::move(path)) {
        ggml_context * ctx = nullptr;
        gguf_.reset(gguf_init_from_file(path_.c_str(), {/*no_alloc=*/true, &ctx}));
        ctx_.reset(ctx);
        if (!gguf_) throw Error(path_ + ": is not there, or no whole GGUF file");
        const int64_t n = gguf_get_n_tensors(gguf_.get());
        const std::vector<std::string> full   = strings("baseline.tensors", n),
                                       shapes = strings("baseline.shapes", n);
        for (int64_t i = 0; i < n; i++) {
            const char *        stored = gguf_get_tensor_name(gguf_.get(), i);
            const ggml_tensor * t      = ggml_get_tensor(ctx_.get(), stored);
            const bool          listed = !full.empty() && !shapes.empty();
            const std::string   name   = listed ? full[i] : stored;
            const Shape         shape  = listed ? parsed(shapes[i], t, name)
                                                : detail::numpy_shape(t);
            const size_t        offset = gguf_get_data_offset(gguf_.get()) +
                                  gguf_get_tensor_offset(gguf_.get(), i);
            if (!places_.emplace(name, Place{t, shape, offset}).second) {
                throw Error(path_ + ": has two tensors " + detail::quoted(name));
            }
            names_.push_back(name);
        }
    }

    const std::vector<std::string> & names() const { return names_; }  // in the file's order
    bool has(const std::string & name) const { return places_.count(name) != 0; }

    Golden get(const std::string & name) const {
        const Place &     place = this->place(name);
        std::vector<char> bytes(ggml_nbytes(place.tensor));
        std::ifstream     file(path_, std::ios::binary);
        file.seekg(static_cast<std::streamoff>(place.offset));
        file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        if (!file) throw Error(path_ + ": " + detail::quoted(name) + " cannot be read");
        return {name, place.shape, detail::to_f32(place.tensor, bytes, name)};
    }

    // An f32 input of the golden's shape, for a graph that is being built; feed it once it has
    // memory.
    ggml_tensor * input(ggml_context * ctx, const std::string & name) const {
        const auto    ne = Golden{name, place(name).shape, {}}.ne();
        ggml_tensor * t  = ggml_new_tensor(ctx, GGML_TYPE_F32, GGML_MAX_DIMS, ne.data());
        ggml_set_name(t, name.c_str());
        ggml_set_input(t);
        return t;
    }

    // Copy a golden into a tensor: f32, contiguous, with memory, of the golden's shape (axes of
    // size 1 aside).
    void feed(const std::string & name, ggml_tensor * t) const {
        const Golden golden = get(name);
        const auto   ne     = golden.ne();
        const auto   real   = [](Shape s) {
            s.erase(std::remove(s.begin(), s.end(), 1), s.end());
            return s;
        };
        if (t->type != GGML_TYPE_F32 || !ggml_is_contiguous(t) || !t->data) {
            throw Error(detail::quoted(name) + " can be fed to a contiguous f32 tensor with memory"
                        " only");
        }
        if (real({t->ne, t->ne + GGML_MAX_DIMS}) != real({ne.begin(), ne.end()})) {
            throw Error(detail::quoted(name) + " is [" + detail::text(golden.shape) +
                        "], and the tensor to be fed [" + detail::text(detail::numpy_shape(t)) +
                        "] (numpy's order)");
        }
        const size_t size = golden.values.size() * sizeof(float);
        if (detail::root(t)->buffer) ggml_backend_tensor_set(t, golden.values.data(), 0, size);
        else std::memcpy(t->data, golden.values.data(), size);
    }

  private:
    struct Place {
        const ggml_tensor * tensor;
        Shape               shape;
        size_t              offset;  // in the file
    };

    const Place & place(const std::string & name) const {
        const auto it = places_.find(name);
        if (it == places_.end()) throw Error(path_ + ": has no tensor " + detail::quoted(name));
        return it->second;
    }

    std::vector<std::string> strings(const char * key, int64_t n) const {  // {} where it has none
        const int64_t id = gguf_find_key(gguf_.get(), key);
        if (id < 0) return {};
        if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_ARRAY ||
            gguf_get_arr_type(gguf_.get(), id) != GGUF_TYPE_STRING ||
            gguf_get_arr_n(gguf_.get(), id) != static_cast<size_t>(n)) {
            throw Error(path_ + ": the key " + key + " is no list of one text for each tensor");
        }
        std::vector<std::string> out;
        for (int64_t i = 0; i < n; i++) out.push_back(gguf_get_arr_str(gguf_.get(), id, i));
        return out;
    }

    Shape parsed(const std::string & text, const ggml_tensor * t, const std::string & name) const {
        Shape   shape;
        int64_t count = 1;
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find(',', at), text.size());
            shape.push_back(std::strtoll(text.substr(at, end - at).c_str(), nullptr, 10));
            count *= shape.back();
            at = end + 1;
        }
        if (count != ggml_nelements(t) || detail::text(shape) != text) {
            throw Error(path_ + ": " + detail::quoted(name) + " has the shape [" + text +
                        "] in its keys and " + std::to_string(ggml_nelements(t)) + " values");
        }
        return shape;
    }

    std::string                            path_;
    detail::Context                        ctx_;
    detail::Gguf                           gguf_;
    std::vector<std::string>               names_;
    std::unordered_map<std::string, Place> places_;
};

}  // namespace golden_dump
