"""Words that the sample data is made of, in several scripts."""

# Home markets of the shop: their share of the customers, and the script of the names there.
MARKETS = {
    "DE": (24, "german"),
    "FR": (12, "french"),
    "GB": (12, "english"),
    "US": (14, "english"),
    "JP": (8, "japanese"),
    "CN": (8, "chinese"),
    "EG": (7, "arabic"),
    "IN": (8, "hindi"),
    "GR": (3, "greek"),
    "UA": (4, "ukrainian"),
}

# Script: given names, family names, and what stands between them.
NAMES = {
    "english": (
        "Ada Alan Grace James Margaret Noor Oliver Priya Rosa Tom",
        "Baker Clarke Ellis Hughes Lovelace O'Brien Patel Smith Taylor Wright",
        " ",
    ),
    "german": (
        "Anneliese Björn Frieda Günther Jürgen Käthe Lena Matthias Sören Ute",
        "Bäcker Größler Hoffmann Königsberg Müller Schäfer Schröder Vogel Weiß Zöllner",
        " ",
    ),
    "french": (
        "Anaïs Benoît Chloé Élodie François Gaëlle Hélène Loïc Noémie Zoé",
        "Bélanger Chevalier D'Aubigné Dupont Fournier Gauthier Lefèvre Moreau Rousseau Simon",
        " ",
    ),
    "japanese": ("陽菜 蓮 さくら 大翔 結衣 湊 美咲 悠真", "佐藤 鈴木 高橋 田中 伊藤 渡辺 山本 中村", ""),
    "chinese": ("伟 芳 秀英 敏 静 强 磊 洋", "王 李 张 刘 陈 杨 黄 赵", ""),
    "arabic": ("محمد فاطمة أحمد مريم يوسف ليلى عمر نور", "المصري حسن إبراهيم السيد منصور عبدالله", " "),
    "hindi": ("आरव दीया विवान अनन्या कबीर मीरा", "शर्मा पटेल गुप्ता सिंह रेड्डी वर्मा", " "),
    "greek": ("Γιώργος Μαρία Νίκος Ελένη Δημήτρης", "Παπαδόπουλος Βλάχος Αγγελόπουλος Νικολάου", " "),
    "ukrainian": ("Олена Тарас Оксана Андрій Юлія", "Шевченко Коваленко Бондаренко Ткаченко", " "),
}
FAMILY_NAME_FIRST = {"japanese", "chinese"}

# Root of the category tree: its branches, and what they sell.
CATALOGUE = {
    "Kitchen": {
        "Tea & coffee": ["Teapot", "Espresso cup ☕", "Gaiwan 蓋碗", "French press", "Rakwa ركوة"],
        "Knives": ["Chef's knife", "Santoku 三徳", "Bread knife", "Paring knife"],
        "Cookware": ["Wok 锅", "Saucepan", "Tagine طاجين", "Casserole"],
    },
    "Office": {
        "Writing": ["Fountain pen", "Notebook", "Ink bottle", "Brush 毛筆"],
        "Lighting": ["Desk lamp", "Paper lantern 🏮", "Clip light"],
        "Computers": ["Keyboard キーボード", "Mouse", "Laptop stand"],
    },
    "Outdoor": {
        "Camping": ["Tent ⛺", "Sleeping bag", "Lantern", "Camping stove"],
        "Cycling": ["Helmet", "Pannier", "Bicycle bell", "Pump"],
    },
    "Gifts 🎁": {
        "Toys": ["Wooden train 🚂", "Puzzle", "Kite 凧", "Matryoshka матрёшка"],
        "Books": ["Atlas", "Cookery book", "Book of poems شعر"],
    },
}
MATERIALS = ["Ash", "Bamboo", "Brass", "Copper", "Cotton", "Glass", "Linen", "Oak", "Porcelain", "Steel"]
COLOURS = ["black", "blue", "green", "ivory", "natural", "red"]
SENTENCES = [
    "Made in small numbers by people who use it every day.",
    "The surface is finished by hand, so no two pieces look quite the same.",
    "Wash it by hand with warm water and dry it at once.",
    "Fits our other products of the same series.",
    "Spare parts are kept for ten years.",
    "Hergestellt in kleiner Stückzahl; geprüft und für gut befunden.",
    "每一件都由工匠亲手制作。",
    "صُنع يدويًا بعناية.",
    "Delivered in a box that is worth keeping.",
]
SUPPLIERS = [
    ("Solinger Stahlwaren GmbH", "DE"),
    ("Schwarzwald Holz KG", "DE"),
    ("Atelier Lumière", "FR"),
    ("Sheffield Tools Ltd", "GB"),
    ("Portland Outdoor Inc.", "US"),
    ("有限会社 京都工芸", "JP"),
    ("景德镇瓷器厂", "CN"),
    ("مصنع القاهرة للنحاس", "EG"),
    ("जयपुर हस्तशिल्प", "IN"),
    ("Κεραμικά Αθηνών", "GR"),
]
REVIEWS = {
    1: [("Broken after a week", "The handle came off. I want my money back."), ("Enttäuschend", "")],
    2: [("Not as pictured", "The colour is quite different."), ("期待外れ", "思ったより小さいです。")],
    3: [("It does its job", ""), ("Correct, sans plus", "Livraison un peu lente.")],
    4: [("Very good", "A little dear, but well made."), ("جيد جدًا", "أنصح به.")],
    5: [
        ("Love it 😍", "Bought a second one for my sister."),
        ("非常好！", "质量很好，物流很快。"),
        ("Perfekt", ""),
    ],
}
NOTES = [
    "Please leave with the neighbour.",
    "Bitte nicht knicken!",
    "Gift: no invoice in the parcel 🎁",
    "请在工作日送货。",
    "الرجاء الاتصال قبل التسليم",
]
