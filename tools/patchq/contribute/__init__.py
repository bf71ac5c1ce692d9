"""A patch leaves for its upstream: selected, tried, proposed, sent."""

__all__ = ["bugreport", "dossier", "gates", "proposal", "propose", "publish", "selection", "submit", "trials"]
