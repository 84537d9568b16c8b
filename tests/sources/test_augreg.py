"""AugReg's file names and index: the facts read from them, searches, and refusals."""

import pytest

from keras_vit import ConfigError, PresetError, VisionTransformer, checkpoints
from keras_vit.sources import augreg, bucket
from keras_vit.sources.augreg import facts_of_name, search_augreg
from keras_vit.variants import variant
from tests.sources.bucket_server import serving
from tests.words import raises

pytestmark = pytest.mark.without_backend

COLUMNS = (
    "name,ds,lr,aug,wd,do,sd,best_val,final_val,final_test,adapt_ds,adapt_lr,adapt_steps,"
    "adapt_resolution,adapt_final_val,adapt_final_test,params,infer_samples_per_sec,filename,"
    "adapt_filename"
)
UPSTREAM = "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
BEST = f"{UPSTREAM}--imagenet2012-steps_20k-lr_0.03-res_384"
# fmt: off
ROWS = (
    f"S/16,i21k,0.001,light1,0.03,0.0,0.0,0.42,0.42,0.41,imagenet2012,0.03,20000,384,0.84,0.8373,22050664,300.0,{UPSTREAM},{BEST}",
    "S/16,i21k,0.001,light1,0.03,0.0,0.0,0.42,0.42,0.41,imagenet2012,0.03,20000,224,0.82,0.8140,22050664,300.0,u,a",
    "S/16,i21k_30,0.001,none,0.03,0.0,0.0,0.42,0.42,0.41,imagenet2012,0.03,20000.0,384,0.84,,22050664,,u,b",
    "R26+S/32,i1k,0.001,medium2,0.1,0.0,0.0,0.42,0.42,0.41,imagenet2012,0.03,20000,224,0.81,0.80,36431912,560.0,u,c",
    "Ti/16,i21k,0.001,none,0.03,0.0,0.0,0.42,0.42,0.41,cifar100,0.01,10000,224,0.9,0.91,5526352,610.0,u,d",
    "X/99,i21k,0.001,none,0.03,0.0,0.0,0.42,0.42,0.41,cifar100,0.01,10000,224,0.9,0.90,1,610.0,u,e",
)
# fmt: on


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local bucket that serves an index of six rows."""
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serving() as served:
        monkeypatch.setenv("KERAS_VIT_BUCKET", served.url)
        served.files["vit_models/augreg/index.csv"] = index(*ROWS)
        yield served


def index(*rows, header=COLUMNS):
    return "\n".join((header, *rows, "")).encode()


def test_search_sorts_by_test_accuracy(server):
    """Rows without an accuracy come last; the index is downloaded once."""
    found = search_augreg()
    assert [row.adapt_filename for row in found] == [BEST, "a", "c", "b"]
    assert (found[0].score, found[0].adapt_steps, found[3].score) == (0.8373, 20000, None)
    assert search_augreg(limit=1) == found[:1]
    assert server.gets["vit_models/augreg/index.csv"] == 1


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"variant": "vit_s16"}, [BEST, "a", "b"]),
        ({"variant": "r26_vit_s32"}, ["c"]),
        ({"variant": "vit_h14"}, []),
        ({"data": "i21k"}, [BEST, "a"]),
        ({"resolution": 224}, ["a", "c"]),
        ({"augmentation": "none"}, ["b"]),
        ({"min_score": 0.81}, [BEST, "a"]),
        ({"adapt_data": "cifar100"}, ["d", "e"]),
        ({"adapt_data": None, "variant": "vit_ti16"}, ["d"]),
        ({"variant": "vit_s16", "resolution": 384, "min_score": 0.8}, [BEST]),
    ],
    ids=str,
)
def test_search_filters_rows(server, asked, found):
    """By each filter alone, and by several together."""
    assert [row.adapt_filename for row in search_augreg(**asked)] == found


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"variant": "vit_s61"}, ConfigError, ("'vit_s61'", "vit_s16")),
        ({"data": "i21"}, PresetError, ("ds='i21'", "Did you mean 'i21k'", "i1k, i21k, i21k_30")),
        ({"resolution": 256}, PresetError, ("adapt_resolution=256", "224, 384")),
        ({"augmentation": "heavy"}, PresetError, ("aug='heavy'", "light1")),
    ],
    ids=str,
)
def test_a_filter_value_that_no_row_has_is_refused(server, asked, error, words):
    """The message lists the values of the index."""
    with raises(error, *words):
        search_augreg(**asked)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            index(*ROWS, header=COLUMNS.replace("wd,", "")),
            ("line 2", "is 'imagenet2012'"),
        ),
        (index(*ROWS, header=COLUMNS + ",more"), ("line 2", "'more'")),
        (index(ROWS[1].replace("0.8140", "good")), ("line 2", "'good'")),
        (index(ROWS[0], ROWS[1].replace("20000", "0.5")), ("line 3", "adapt_steps is '0.5'")),
        (index(ROWS[1].replace("0.8140", "inf")), ("adapt_final_test is 'inf'",)),
        (index("S/16,i21k"), ("line 2",)),
        (index(ROWS[1] + ",more"), ("line 2",)),
        (b"", ("is empty",)),
        (b"\xff\xfe", ("line 1", "decode")),
        (index('S/16,"i21k'), ("line 1", "unexpected end")),
    ],
)
def test_a_damaged_index_is_refused(server, content, words):
    """The message names file, line and column, and says to delete the file."""
    server.files["vit_models/augreg/index.csv"] = content
    with raises(PresetError, "index.csv", *words, "Delete the"):
        search_augreg()


def test_a_file_name_gives_variant_data_resolution_labels_and_protocol():
    """With and without `.npz`."""
    assert facts_of_name(f"{BEST}.npz") == {
        "name": f"augreg/{BEST}.npz",
        "source": f"{bucket.OFFICIAL}vit_models/augreg/{BEST}.npz",
        "variant": "vit_s16",
        "data": "i21k_ft_imagenet2012",
        "image_size": 384,
        "num_classes": 1000,
        "labels": "imagenet1k",
        "protocol": {"name": "big_vision", "resize_small": 448, "image_size": 384},
    }
    facts = facts_of_name(UPSTREAM)
    assert (facts["data"], facts["image_size"], facts["num_classes"]) == ("i21k", 224, 21843)
    assert (facts["labels"], facts["protocol"]) == ("imagenet21k", "big_vision")
    facts = facts_of_name(f"{UPSTREAM}--kitti-distance-steps_0k-lr_0.003-res_224")
    assert (facts["data"], facts["num_classes"]) == ("i21k_ft_kitti-distance", None)


@pytest.mark.parametrize(
    "name", ["", "B_16", "../../x", "index.csv", UPSTREAM + "--", UPSTREAM + "/x", UPSTREAM + "\n"]
)
def test_names_of_another_form_are_refused(name):
    """The message shows an example."""
    with raises(PresetError, "no file name of AugReg", "S_16-i21k"):
        facts_of_name(name)


def test_every_size_of_augreg_has_a_variant():
    """The table of sizes names existing variants."""
    assert {variant(name).name for name in augreg._VARIANTS.values()} == set(
        augreg._VARIANTS.values()
    )


def test_a_row_of_the_search_loads_by_its_source(server, tmp_path):
    """The file determines the number of classes."""
    model = variant("vit_ti16")(32, num_classes=3, classifier="token")
    checkpoints.save(model, tmp_path / "x.npz", "google")
    name = "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--pets-steps_0k-lr_0.003-res_32"
    server.files[f"vit_models/augreg/{name}.npz"] = (tmp_path / "x.npz").read_bytes()
    row = f"Ti/16,i21k,0.001,none,0.03,0,0,0,0,0,pets,0.003,500,32,0.9,0.9,1,1,u,{name}"
    server.files["vit_models/augreg/index.csv"] = index(row)
    loaded = VisionTransformer.from_preset(search_augreg(adapt_data="pets")[0].source)
    assert (loaded.config.num_classes, loaded.config.image_size) == (3, (32, 32))
    assert (loaded.labels, loaded.name) == (None, "vit_ti16")
    with raises(PresetError, "404"):
        VisionTransformer.from_preset(f"augreg/{UPSTREAM}")
