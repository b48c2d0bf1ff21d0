"""What the data sets are: one table of sizes, files, checksums and mirrors."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from directloss.data.formats import Arrays, decode_batch, decode_idx
from directloss.errors import UserError

Checksums = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Source:
    """A data set and its published files.

    `files` has the SHA-256 of every form that a file comes in, by the suffix of the form. `archive` holds all files in
    one. The mirrors have the archive, or else the last form of each file. No files: bundled.
    """

    train: int
    test: int
    shape: tuple[int, ...] = ()  # of an image: channels, height, width; of other data nothing
    classes: tuple[str, ...] = ()
    unit: str = "images"
    reader: str = "load"  # the function of directloss.data that reads it
    decode: Callable[[bytes, str], Arrays] = decode_idx
    folders: tuple[str, ...] = ()  # where its files may be; downloads go to the first
    mirrors: tuple[str, ...] = ()
    files: Checksums = field(default_factory=dict)
    archive: Checksums = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A fingerprint of the plain files, the same in whatever form they came."""
        return hashlib.sha256("".join(forms[""] for forms in self.files.values()).encode()).hexdigest()[:16]


def find_source(name: str) -> Source:
    """The data set of that name."""
    if name not in SOURCES:
        raise UserError(f"there is no data set {name!r}; choose from {', '.join(SOURCES)}")
    return SOURCES[name]


SOURCES = {
    "mnist": Source(
        shape=(1, 28, 28),
        train=60000,
        test=10000,
        classes=tuple("0123456789"),
        folders=("mnist", "MNIST/raw"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        files={
            "train-images-idx3-ubyte": {
                "": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                ".gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            },
            "train-labels-idx1-ubyte": {
                "": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                ".gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            },
            "t10k-images-idx3-ubyte": {
                "": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                ".gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            },
            "t10k-labels-idx1-ubyte": {
                "": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ".gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            },
        },
    ),
    "fashion-mnist": Source(
        shape=(1, 28, 28),
        train=60000,
        test=10000,
        classes=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        folders=("fashion-mnist", "FashionMNIST/raw"),
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        files={
            "train-images-idx3-ubyte": {
                "": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                ".gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            },
            "train-labels-idx1-ubyte": {
                "": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                ".gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            },
            "t10k-images-idx3-ubyte": {
                "": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                ".gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            },
            "t10k-labels-idx1-ubyte": {
                "": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ".gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            },
        },
    ),
    "cifar-10": Source(
        shape=(3, 32, 32),
        train=50000,
        test=10000,
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        decode=decode_batch,
        folders=("cifar-10", "cifar-10-batches-py", "."),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        files={
            "data_batch_1": {
                "": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
                ".xz": "880a31d350bdb45370c76e115c0ceee822c56ebf37ae1af8496f2f45aa8f20a9",
            },
            "data_batch_2": {
                "": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
                ".xz": "fb99e794058c25fdbb6c8d27c2153aa151d98f601601835f089421b4803d0ced",
            },
            "data_batch_3": {
                "": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
                ".xz": "15f1265fae7ca046543a9003c2827e10670715a510ef94e80c03e39e45e38752",
            },
            "data_batch_4": {
                "": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
                ".xz": "eeb8395b53179f51e22c61f733f5fd46c257bfb843717da76e7c1299eb052f11",
            },
            "data_batch_5": {
                "": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
                ".xz": "abc7dd850696ce1ccd99ffb5f79a6429fb999dae728b079628eec19af24b80fb",
            },
            "test_batch": {
                "": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
                ".xz": "84aeae3bc5d85110d875e63dbbfc70e6427a54b2294986e2150202f256a1f4c6",
            },
        },
        archive={
            "cifar-10-python.tar.gz": {"": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
        },
    ),
    "digits": Source(shape=(1, 8, 8), train=1442, test=355, classes=tuple("0123456789")),
    "energy-knapsack": Source(
        train=552,
        test=237,
        unit="days",
        reader="load_energy",
        folders=("energy-knapsack",),
        mirrors=("https://github.com/PredOpt/predopt-benchmarks/raw/1a8e048/Knapsack/Trainer/",),
        files={"Data.npz": {"": "7b512a53d6568af4a5c9b4d600086dc7acf49903d67bd434a05ce55bd828e07e"}},
    ),
    "web-ranking": Source(
        train=201,
        test=50,
        unit="queries",
        reader="load_ranking",
        folders=("web-ranking",),
        mirrors=("https://github.com/microsoft/LightGBM/raw/bae0b7b/examples/lambdarank/",),
        files={
            "rank.train": {
                ".gz": "fb86079ed73ce9c88dfe63782edaceebaa6445fc0f0f123b06578e74db436736",
                "": "a0c7201c89120879c14a5059e091f441cbf2a29b8aaef363885ccb1a530448df",
            },
            "rank.test": {
                ".gz": "2debc1b573146a838d05664d21a4b1cbbda8953500d3088cdc3e11c015854841",
                "": "3b1219ce117a0a36d2f76c02de7e7831c1d79af0d40f5195c03178bbe26c824b",
            },
            "rank.train.query": {"": "40cb5fef637229311cd30fab13cb7fb633b023e86a87ff04ec55db420143d6af"},
            "rank.test.query": {"": "36dca82ba3bf99201bac3987b00a8fbf6fe5f563e9fa6d0da90e783710a32df4"},
        },
    ),
    "letters": Source(
        train=6877,
        test=0,
        unit="words",
        reader="load_letters",
        folders=("letters",),
        mirrors=("https://ai.stanford.edu/~btaskar/ocr/",),
        files={
            "letter.data": {
                "": "535363d0b7bc34246b1f8731719540f526b6807b12dda5d430d011d160bc7882",
                ".gz": "4ef9522ffeaa68cad889ad8d02ad3fca411fe6a656546c236a183866157b3b34",
            },
        },
    ),
    "ud-english-ewt": Source(
        train=12544,
        test=2077,
        unit="sentences",
        reader="load_treebank",
        folders=("ud-english-ewt",),
        mirrors=("https://github.com/UniversalDependencies/UD_English-EWT/raw/15d613d/",),
        files={
            "en_ewt-ud-train.conllu": {
                ".xz": "7e8496d11de12deb81c6dd479785ef225439de3f281dbf78f02459633645a9ad",
                "": "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
            },
            "en_ewt-ud-dev.conllu": {
                ".xz": "343a1f0431c7eb0f7cf51f4d60d5d2b59dc0c94d26a4cd2fd4d4ab9c6af2dae4",
                "": "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
            },
            "en_ewt-ud-test.conllu": {
                ".xz": "694c114fe9170a1b052d7690b45ebe1081c7e8257035e5fe3462e8736a5a38fd",
                "": "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
            },
        },
    ),
}
