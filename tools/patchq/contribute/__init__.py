"""A patch leaves for its upstream: selected, tried, proposed, sent."""

__all__ = ["bugreport", "dossier", "follow", "gates", "proposal", "propose", "publish", "selection", "submit", "trials"]
