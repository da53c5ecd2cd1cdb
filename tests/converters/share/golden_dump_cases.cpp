// What golden_dump.h does with odd tensors and wrong calls; test_golden_dump.py runs it by case.
//   cases CASE OUT [GOLDENS]
#include "golden_dump.h"

#include <ggml-alloc.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>

using golden_dump::Goldens;
using golden_dump::Writer;

namespace {

std::vector<float> counted(int64_t n, float scale = 1.0f) {
    std::vector<float> out(n);
    for (int64_t i = 0; i < n; i++) out[i] = scale * static_cast<float>(i);
    return out;
}

// A graph on the CPU backend whose memory the allocator shares out, as an engine has it.
struct Graph {
    ggml_context_ptr context{ggml_init({1 << 20, nullptr, true})};
    ggml_context *   ctx   = context.get();
    ggml_cgraph *    graph = ggml_new_graph(ctx);
    ggml_backend_ptr backend{ggml_backend_cpu_init()};
    ggml_gallocr_ptr memory{
        ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend.get()))};
    std::vector<std::pair<ggml_tensor *, std::vector<float>>> inputs;

    ggml_tensor * input(const std::vector<int64_t> & ne, float scale = 1.0f) {
        ggml_tensor * t =
            ggml_new_tensor(ctx, GGML_TYPE_F32, static_cast<int>(ne.size()), ne.data());
        ggml_set_input(t);
        inputs.emplace_back(t, counted(ggml_nelements(t), scale));
        return t;
    }
    void expand(ggml_tensor * t) { ggml_build_forward_expand(graph, t); }
    void allocate() { GGML_ASSERT(ggml_gallocr_alloc_graph(memory.get(), graph)); }
    void compute() {
        allocate();
        for (auto & [t, values] : inputs) {
            ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
        }
        GGML_ASSERT(ggml_backend_graph_compute(backend.get(), graph) == GGML_STATUS_SUCCESS);
    }
};

// Every type that a stage may have; 0, 1, 2 ... times a scale.
void types(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * x = g.input({32, 3}, 0.25f);
    for (ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0}) {
        g.expand(dump.mark(ggml_cast(g.ctx, x, type), ggml_type_name(type)));
    }
    g.expand(dump.mark(ggml_argmax(g.ctx, x), "i32"));
    g.compute();
}

// Views that are read once, so that nobody but the mark keeps their source: many ops follow, which
// want its memory.
void views(Writer & dump, Graph & g, const Goldens *) {
    const auto look = [&](const std::string & name, auto view) {
        ggml_tensor * y = view(ggml_scale(g.ctx, g.input({5, 4, 3}), 2.0f));
        dump.mark(y, name);
        // Without it ggml 0.9.4 uses the memory of what an output looks into again.
        GGML_ASSERT(y->view_src->flags & GGML_TENSOR_FLAG_OUTPUT);
        y = ggml_cast(g.ctx, y, GGML_TYPE_F32);
        for (int i = 0; i < 4; i++) y = ggml_cont(g.ctx, ggml_scale(g.ctx, y, 0.5f));
        g.expand(y);
    };
    look("transposed", [&](ggml_tensor * y) { return ggml_transpose(g.ctx, y); });
    look("permuted", [&](ggml_tensor * y) { return ggml_permute(g.ctx, y, 2, 0, 1, 3); });
    look("strided", [&](ggml_tensor * y) {
        return ggml_view_2d(g.ctx, y, 2, 3, y->nb[2], y->nb[1]);
    });
    look("half", [&](ggml_tensor * y) {
        return ggml_transpose(g.ctx, ggml_cast(g.ctx, y, GGML_TYPE_F16));
    });
    g.compute();
}

// The same tensor by the name that the engine gave it.
void named(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * y = ggml_scale(g.ctx, g.input({4}), 3.0f);
    ggml_set_name(y, "stem");
    for (int i = 0; i < 4; i++) y = ggml_sqr(g.ctx, y);
    g.expand(y);
    for (const std::string & name : dump.mark_named(g.graph, {"stem", "nowhere"})) {
        std::cout << "missing " << name << "\n";
    }
    g.compute();
}

// A context that owns its tensors' memory, without a backend.
void without_a_backend(Writer & dump, Graph &, const Goldens *) {
    ggml_context_ptr owner(ggml_init({1 << 20, nullptr, false}));
    ggml_tensor *    x = ggml_new_tensor_2d(owner.get(), GGML_TYPE_F32, 3, 2);
    std::memcpy(x->data, counted(6).data(), ggml_nbytes(x));
    ggml_cgraph * graph = ggml_new_graph(owner.get());
    ggml_build_forward_expand(
        graph, dump.mark(ggml_transpose(owner.get(), ggml_scale(owner.get(), x, 2.0f)), "y"));
    GGML_ASSERT(ggml_graph_compute_with_ctx(owner.get(), graph, 1) == GGML_STATUS_SUCCESS);
    dump.capture(graph);
}

// Values of the engine's own; names of any length, one as those of the header's own making.
void host(Writer & dump, Graph &, const Goldens *) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float odd[] = {nan, std::numeric_limits<float>::infinity(), -0.0f, 1e-45f};
    dump.add("odd", odd, {2, 2});
    dump.add("scalar", odd + 3, {});
    dump.add("five", counted(48).data(), {2, 1, 2, 3, 4});
    dump.add("~0", counted(2).data(), {2});
    dump.add(std::string(200, 'a'), counted(3).data(), {1, 3});
    dump.add(std::string(200, 'a') + "b", counted(4).data(), {4, 1});
}

// Goldens out of a file and into another.
void copy(Writer & dump, Graph &, const Goldens * goldens) {
    for (const std::string & name : goldens->names()) {
        const golden_dump::Golden golden = goldens->get(name);
        dump.add(name, golden.values.data(), golden.shape);
    }
}

// Goldens into a graph's inputs, and from there into another file.
void feed(Writer & dump, Graph & g, const Goldens * goldens) {
    std::map<std::string, ggml_tensor *> inputs;
    for (const std::string & name : goldens->names()) {
        inputs[name] = goldens->input(g.ctx, name);
        g.expand(dump.mark(ggml_dup(g.ctx, inputs[name]), name));
    }
    g.allocate();
    for (const auto & [name, tensor] : inputs) goldens->feed(name, tensor);
    g.compute();
}

// Two graphs into one file; the second uses the first one's memory again.
void two_graphs(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * x = g.input({4});
    g.expand(dump.mark(ggml_scale(g.ctx, x, 2.0f), "first"));
    g.compute();
    dump.capture(g.graph);
    g.graph = ggml_new_graph(g.ctx);
    x       = g.input({4});
    g.inputs.erase(g.inputs.begin());
    g.expand(dump.mark(ggml_scale(g.ctx, x, 3.0f), "second"));
    g.compute();
}

// --- what is refused -----------------------------------------------------------------------

void twice(Writer & dump, Graph & g, const Goldens *) {
    dump.mark(g.input({2}), "x");
    dump.mark(g.input({2}), "x");
}
void no_name(Writer & dump, Graph & g, const Goldens *) { dump.mark(g.input({2}), ""); }
void no_tensor(Writer & dump, Graph &, const Goldens *) { dump.mark(nullptr, "x"); }
void nothing(Writer &, Graph &, const Goldens *) {}
void empty(Writer & dump, Graph &, const Goldens *) { dump.add("x", nullptr, {3, 0}); }
void late(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * y = ggml_sqr(g.ctx, g.input({4}));
    g.expand(ggml_sqr(g.ctx, y));
    g.compute();
    dump.mark(y, "y");
}
void elsewhere(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * x = g.input({4});
    dump.mark(ggml_sqr(g.ctx, x), "forgotten");
    g.expand(dump.mark(ggml_scale(g.ctx, x, 2.0f), "y"));
    g.compute();
}
void overwritten(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * y = dump.mark(ggml_scale(g.ctx, g.input({4}), -1.0f), "y");
    g.expand(ggml_relu_inplace(g.ctx, y));
    g.compute();
}
void unallocated(Writer & dump, Graph & g, const Goldens *) {
    g.expand(dump.mark(ggml_sqr(g.ctx, g.input({4})), "y"));
}
void same_name(Writer & dump, Graph & g, const Goldens *) {
    for (float scale : {2.0f, 3.0f}) {
        ggml_tensor * y = ggml_scale(g.ctx, g.input({4}), scale);
        ggml_set_name(y, "y");
        g.expand(y);
    }
    dump.mark_named(g.graph, {"y"});
}
void large_integer(Writer & dump, Graph & g, const Goldens *) {
    ggml_tensor * x = ggml_new_tensor_1d(g.ctx, GGML_TYPE_I32, 2);
    ggml_set_input(x);
    ggml_tensor * y = dump.mark(ggml_cont(g.ctx, x), "ids");
    g.expand(y);
    g.allocate();
    const int32_t ids[] = {3, (1 << 24) + 1};
    ggml_backend_tensor_set(y, ids, 0, sizeof ids);
}
void unknown(Writer &, Graph &, const Goldens * goldens) { goldens->get("nowhere"); }
void other_shape(Writer &, Graph & g, const Goldens * goldens) {
    ggml_tensor * x = g.input({2, 3});
    g.expand(ggml_sqr(g.ctx, x));
    g.allocate();
    goldens->feed("grid", x);
}
void fed_too_early(Writer &, Graph & g, const Goldens * goldens) {
    goldens->feed("grid", goldens->input(g.ctx, "grid"));
}

using Case = void (*)(Writer &, Graph &, const Goldens *);
const std::map<std::string, Case> cases = {
    {"types", types}, {"views", views}, {"named", named}, {"without_a_backend", without_a_backend},
    {"host", host}, {"copy", copy}, {"feed", feed}, {"two_graphs", two_graphs}, {"twice", twice},
    {"no_name", no_name}, {"no_tensor", no_tensor}, {"nothing", nothing}, {"empty", empty},
    {"late", late}, {"elsewhere", elsewhere}, {"overwritten", overwritten},
    {"unallocated", unallocated}, {"same_name", same_name}, {"large_integer", large_integer},
    {"unknown", unknown}, {"other_shape", other_shape}, {"fed_too_early", fed_too_early},
};

}  // namespace

int main(int argc, char ** argv) try {
    Writer                   dump(argv[2]);
    Graph                    g;
    std::unique_ptr<Goldens> goldens(argc > 3 ? new Goldens(argv[3]) : nullptr);
    cases.at(argv[1])(dump, g, goldens.get());
    dump.capture(g.graph);
    dump.write();
    return 0;
} catch (const golden_dump::Error & error) {
    std::cerr << error.what() << "\n";
    return 1;
}
