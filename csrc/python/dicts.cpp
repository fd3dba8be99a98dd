// dicts.cpp - notices when what Python keeps in dicts is replaced: a look at each costs a
// microsecond for a whole policy, where the interpreter takes ten.
#include "python/bindings.h"

namespace {

// The objects that are values of some dicts, and dicts that lack some keys.
class DictWatch {
 public:
    DictWatch(const std::vector<nb::dict>& dicts, const std::vector<nb::dict>& others,
              const std::vector<nb::str>& keys)
        : dicts_(dicts), others_(others), keys_(keys) {
        for (const nb::dict& dict : dicts_)
            for (auto item : dict) values_.push_back(nb::borrow(item.second));
    }

    bool is_same() const {
        size_t at = 0;
        for (const nb::dict& dict : dicts_) {
            PyObject *key, *value;
            for (Py_ssize_t place = 0; PyDict_Next(dict.ptr(), &place, &key, &value); at++)
                if (at == values_.size() || values_[at].ptr() != value) return false;
        }
        if (at != values_.size()) return false;
        for (const nb::dict& other : others_)
            for (const nb::str& key : keys_) {
                const int found = PyDict_Contains(other.ptr(), key.ptr());
                if (found < 0) throw nb::python_error();
                if (found) return false;
            }
        return true;
    }

 private:
    std::vector<nb::dict> dicts_, others_;
    std::vector<nb::str> keys_;
    std::vector<nb::object> values_;
};

}  // namespace

void bind_dicts(nb::module_& module) {
    nb::class_<DictWatch>(module, "DictWatch")
        .def(nb::init<const std::vector<nb::dict>&, const std::vector<nb::dict>&,
                      const std::vector<nb::str>&>(),
             "dicts"_a, "others"_a, "keys"_a)
        .def("is_same", &DictWatch::is_same);
}
