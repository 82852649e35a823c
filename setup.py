"""Distribution of d_k lab. The ranges say what is known to work; exact versions stand in requirements.txt."""

from setuptools import find_packages, setup

# jax 0.10.0 to 0.11.0 wait for ever on a CPU in batched QR under jit(vmap(...)); the engine refuses them too.
JAX = ">=0.9.2,!=0.10.0,!=0.10.1,!=0.10.2,!=0.11.0"

setup(
    name="dk-lab",
    version="0.1.0",
    description="Which attention score between query and key survives as d_k grows, and why?",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["model", "model.*", "train", "train.*", "configs", "configs.*"]),
    install_requires=[
        f"jax{JAX}",
        "flax>=0.12.6",
        "optax>=0.2.8,<0.3",
        "numpy>=2.0,<3",
        "absl-py>=2.1",
        "ml_collections>=1.1,<2",
        "orbax-checkpoint>=0.12.8,<0.13",
        "sacrebleu>=2.6,<3",
        "scipy>=1.15,<2",
        "altair>=6.0,<7",
        "vl-convert-python>=1.9,<2",
        "tqdm>=4.66,<5",
    ],
    extras_require={
        "test": ["pytest>=9", "pytest-timeout>=2.3", "pytest-xdist>=3.8", "mypy>=2", "ruff>=0.17", "pre-commit>=4"],
        # sacrebleu's Japanese tokeniser, for --config.task.bleu_tokenize=ja-mecab
        "ja": ["sacrebleu[ja]"],
        "cuda": [f"jax[cuda13]{JAX}"],
        "tpu": [f"jax[tpu]{JAX}"],
    },
)
