"""What the shop sells: categories, suppliers, products, and their files."""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from django.utils.text import slugify

from ..models import Category, Document, Product, StockMovement, Supplier
from . import texts
from .files import pdf, png, store

VARIANTS = 6
IMAGE_EVERY = 4
MANUAL_EVERY = 10
RETURNS_POLICY = "Goods may be returned within 30 days. 退货期限为三十天。 يمكن إرجاع البضائع خلال 30 يومًا.\n"


def create_catalogue(rng: Random, opening: datetime) -> list[Product]:
    """Creates everything that is for sale, as of the day when the shop opened."""
    products = Product.objects.bulk_create(_products(rng, _create_leaves(), opening))
    _create_suppliers(rng, products)
    _create_documents(products, opening)
    StockMovement.objects.bulk_create(
        StockMovement(id=number, product=product, quantity=5000, reason="purchase", created=opening)
        for number, product in enumerate(products, start=1)
    )
    return products


def _create_leaves() -> dict[Category, list[str]]:
    """Creates the tree of categories; returns its leaves, each with the nouns of what it holds."""
    leaves, pk = {}, 0
    for root_name, branches in texts.CATALOGUE.items():
        root = Category(id=(pk := pk + 1), name=root_name, slug=slugify(root_name))
        root.save(force_insert=True)
        for name, nouns in branches.items():
            leaf = Category(id=(pk := pk + 1), parent=root, name=name, slug=slugify(f"{root_name} {name}"))
            leaf.save(force_insert=True)
            leaves[leaf] = nouns
    return leaves


def _products(rng: Random, leaves: dict[Category, list[str]], opening: datetime) -> Iterator[Product]:
    nouns = [(category, noun) for category, names in leaves.items() for noun in names]
    for number, (category, noun) in enumerate(nouns * VARIANTS, start=1):
        sku = f"{category.slug[:3].upper()}-{number:04}"
        yield Product(
            id=uuid.UUID(int=rng.getrandbits(128), version=4),
            sku=sku,
            name=f"{texts.MATERIALS[(number * 7 + number // 30) % len(texts.MATERIALS)]} {noun}",
            description="\n\n".join(
                " ".join(rng.choices(texts.SENTENCES, k=rng.randint(3, 9))) for _ in range(rng.randint(1, 6))
            ),
            category=category,
            price=Decimal(rng.randint(290, 39900)) / 100,
            image=_image(rng, sku) if number % IMAGE_EVERY == 0 else "",
            attributes={
                "colour": rng.choice(texts.COLOURS),
                "weight_g": rng.randint(50, 9000),
                "dimensions_mm": [rng.randint(20, 900) for _ in range(3)],
                "dishwasher_safe": rng.random() < 0.5,
            },
            active=rng.random() < 0.95,
            created=opening + timedelta(minutes=number),
        )


def _image(rng: Random, sku: str) -> str:
    colour = (rng.randrange(256), rng.randrange(256), rng.randrange(256))
    return store(f"products/{sku.lower()}.png", png(colour))


def _create_suppliers(rng: Random, products: list[Product]) -> None:
    suppliers = Supplier.objects.bulk_create(
        Supplier(id=number, name=name, country_id=country, email=f"sales@supplier{number}.example")
        for number, (name, country) in enumerate(texts.SUPPLIERS, start=1)
    )
    links = Product.suppliers.through
    links.objects.bulk_create(
        links(product=product, supplier=supplier)
        for product in products
        for supplier in rng.sample(suppliers, k=rng.randint(1, 3))
    )


def _create_documents(products: list[Product], opening: datetime) -> None:
    policy = store("documents/returns-policy.txt", RETURNS_POLICY.encode())
    documents = [Document(id=1, title="Returns policy", file=policy, uploaded=opening)]
    for number, product in enumerate(products[::MANUAL_EVERY], start=2):
        file = store(f"documents/{product.sku.lower()}.pdf", pdf(f"Manual of {product.sku}: {product.name}"))
        title = f"Manual: {product.name}"
        documents.append(Document(id=number, title=title, file=file, product=product, uploaded=opening))
    Document.objects.bulk_create(documents)
